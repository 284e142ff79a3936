"""The secret of a cluster, and the attempt that a task belongs to."""

from __future__ import annotations

import base64
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime import authentication, environment
from lockstep._engine.runtime.authentication import Secret
from lockstep.errors import ArgumentError
from tests.engine.runtime.properties import steady

LONG = "0123456789abcdef"
PARTS = st.lists(st.text(max_size=20), max_size=4)


@steady
@given(PARTS, PARTS)
def test_a_proof_is_of_its_parts_alone(said: list[str], other: list[str]) -> None:
    key = Secret(b"k" * 16)
    proof = key.mac(*said)
    assert key.verify(proof, *said)
    assert key.verify(proof, *other) == (said == other)
    assert not Secret(b"K" * 16).verify(proof, *said)
    assert not Secret().verify(proof, *said)
    assert not key.verify("", *said)


@steady
@given(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()))
def test_anything_may_be_said_to_be_a_proof(proof: object) -> None:
    assert not Secret(b"k" * 16).verify(proof, "a")


def test_without_a_secret_nothing_is_proven_by_nothing() -> None:
    assert Secret().mac("a") == ""
    assert Secret().verify("", "a")
    assert not Secret().is_set


def test_it_is_not_shown() -> None:
    assert LONG not in repr(Secret(LONG.encode()))


def test_it_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not authentication.secret_from_environment().is_set
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET", f" {LONG}\n")
    from_text = authentication.secret_from_environment()
    monkeypatch.delenv("LOCKSTEP_CLUSTER_SECRET")
    path = tmp_path / "secret"
    path.write_text(f"{LONG}\n")
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET_FILE", str(path))
    assert authentication.secret_from_environment().mac("a") == from_text.mac("a") == Secret(LONG.encode()).mac("a")


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("0123456789abcdef", 64),
        ("a" * 40, 0),
        ("ab" * 40, 80),
        ("password12345678", 83),
        ("1" * 10 + "0234567890", 66),
        ("Tr0ub4dor&3Tr0ub4d", 120),
        ("zyxwvutsrqponmlkjihg", 94),
    ],
)
def test_a_weak_one_draws_a_warning_that_says_how_to_make_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str, bits: int
) -> None:
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET", text)
    assert authentication.secret_from_environment().is_set
    (line,) = caplog.messages
    assert "should have 128 bits or more: " in line and f"LOCKSTEP_CLUSTER_SECRET has at most {bits}." in line
    assert 'python -c "import secrets; print(secrets.token_hex(32))"' in line
    assert text not in line


@steady
@given(st.integers(0, 1 << 32))
def test_a_random_one_draws_none(seed: int) -> None:
    random = Random(seed)
    data = random.randbytes(16)
    letters = "".join(random.choice("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz0123456789") for _ in range(22))
    for text in (data.hex(), data.hex().upper(), base64.b64encode(data).decode(), letters, random.randbytes(32).hex()):
        assert authentication.estimated_bits(text.encode()) >= 128, text
    assert authentication.estimated_bits(random.randbytes(16)) >= 96


@pytest.mark.parametrize("text", ["", " ", "short", "x" * 5000])
def test_one_that_is_no_secret_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET", text)
    with pytest.raises(ArgumentError, match="must have 16 to 4096 bytes") as error:
        authentication.secret_from_environment()
    assert "short" not in str(error.value)


@pytest.mark.parametrize("path", ["", "/nowhere", "/dev/zero", "/tmp"])
def test_a_file_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET_FILE", path)
    with pytest.raises(ArgumentError, match="must name a file that holds the secret"):
        authentication.secret_from_environment()


def test_it_comes_from_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET", LONG)
    monkeypatch.setenv("LOCKSTEP_CLUSTER_SECRET_FILE", "/nowhere")
    with pytest.raises(ArgumentError, match="must come from one place"):
        authentication.secret_from_environment()


@pytest.mark.parametrize(("text", "number"), [(None, 0), ("", 0), ("0", 0), ("17", 17)])
def test_generations(monkeypatch: pytest.MonkeyPatch, text: str | None, number: int) -> None:
    if text is not None:
        monkeypatch.setenv("LOCKSTEP_GENERATION", text)
    assert environment.attempt() == number


@pytest.mark.parametrize("text", ["-1", "1.0", "one", " 1", "9" * 30, "١"])
def test_what_is_no_generation(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LOCKSTEP_GENERATION", text)
    with pytest.raises(ArgumentError, match="LOCKSTEP_GENERATION must be a number"):
        environment.attempt()
