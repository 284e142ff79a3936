"""The time limits of all waits."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime.limits import Limits
from lockstep.errors import ArgumentError
from tests.engine.runtime.jobs import Job, addresses
from tests.engine.runtime.properties import steady

VARIABLES = {f.name: f"LOCKSTEP_{f.name.upper()}_TIMEOUT" for f in dataclasses.fields(Limits)}
VARIABLES["grace"] = "LOCKSTEP_GRACE"


def test_without_settings_the_limits_are_the_documented_ones() -> None:
    assert Limits.from_environment() == Limits(
        join=300, peer=600, silence=60, leave=3600, grace=25, progress=900, compile=3600
    )


@pytest.mark.parametrize("name", VARIABLES)
def test_each_limit_has_its_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[name], "7.5")
    assert Limits.from_environment() == dataclasses.replace(Limits(), **{name: 7.5})


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("text", ["ten", "0", "-1", "nan", "inf", "1e400", "5s", " ", "0x10", "1,5"])
def test_anything_but_a_positive_number_is_refused(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[name], text)
    with pytest.raises(ArgumentError) as error:
        Limits.from_environment()
    assert f"{VARIABLES[name]} must be a positive number of seconds. Received: {text!r}." in str(error.value)
    assert f"Example: {VARIABLES[name]}=120" in str(error.value)


def test_an_empty_setting_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_JOIN_TIMEOUT", "")
    assert Limits.from_environment() == Limits()


@steady
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_whatever_the_setting_it_is_a_limit_or_an_error(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_PEER_TIMEOUT", text)
        try:
            assert 0 < Limits.from_environment().peer < math.inf
        except ArgumentError as error:
            assert repr(text) in str(error)


def test_a_worker_with_a_malformed_limit_ends_before_it_waits(job: Job) -> None:
    task = job.join(addresses(2), 0, LOCKSTEP_JOIN_TIMEOUT="soon")
    assert task.wait(20) == 1
    assert "ArgumentError: LOCKSTEP_JOIN_TIMEOUT must be a positive number of seconds. Received: 'soon'" in task.err
