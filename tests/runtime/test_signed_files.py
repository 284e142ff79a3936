"""Files that are loaded as code: as they were written, or not at all."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._runtime import signed_files
from lockstep._runtime.signed_files import OVERHEAD, SignedFiles


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the files are; the key lies beside it."""
    path = tmp_path / "files"
    path.mkdir()
    return path


@given(data=st.data(), content=st.binary(max_size=300))
def test_damage_of_any_kind_at_any_place_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("files")
    path = directory / "code"
    SignedFiles(directory).write(path, content)
    written = path.read_bytes()
    assert len(written) == len(content) + OVERHEAD
    place = data.draw(st.integers(0, len(written) - 1))
    damaged = data.draw(
        st.sampled_from(
            [
                written[:place],
                written + b"\0" * (place + 1),
                written[:place] + bytes([written[place] ^ (1 << place % 8)]) + written[place + 1 :],
                written[:place] + bytes(len(written) - place) if any(written[place:]) else b"",
            ]
        )
    )
    path.write_bytes(damaged)
    assert SignedFiles(directory).read(path) is None
    assert not path.exists()


def test_a_file_counts_only_under_its_name_and_key(directory: Path) -> None:
    files = SignedFiles(directory)
    files.write(directory / "a", b"code")
    os.rename(directory / "a", directory / "b")
    assert files.read(directory / "b") is None
    files.write(directory / "a", b"code")
    (directory.parent / "key").write_bytes(bytes(32))
    assert files.read(directory / "a") is None


def test_the_key_is_private_and_the_same_for_all(directory: Path) -> None:
    stores = [SignedFiles(directory) for _ in range(8)]
    threads = [
        threading.Thread(target=store.write, args=(directory / f"{i}", b"code")) for i, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    key = directory.parent / "key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.stat().st_size == 32
    assert [SignedFiles(directory).read(directory / f"{i}") for i in range(8)] == [b"code"] * 8
    assert {p.name for p in directory.parent.iterdir()} == {"files", "key"}


@pytest.mark.parametrize("damage", ["short", "long", "readable by others", "a link", "a directory"])
def test_a_key_that_cannot_be_used_is_replaced(damage: str, directory: Path) -> None:
    """What was signed with it is made again; where that is impossible, nothing is loaded or kept."""
    files, key = SignedFiles(directory), directory.parent / "key"
    files.write(directory / "a", b"code")
    if damage == "readable by others":
        key.chmod(0o644)
    else:
        content = key.read_bytes()
        key.unlink()
        if damage == "a directory":
            key.mkdir()
            assert files.read(directory / "a") is None
            with pytest.raises(OSError):
                files.write(directory / "a", b"code")
            return
        if damage == "a link":
            (directory.parent / "elsewhere").write_bytes(content)
            (directory.parent / "elsewhere").chmod(0o600)
            key.symlink_to("elsewhere")
        else:
            key.write_bytes(content[:-1] if damage == "short" else content + b"\0")
            key.chmod(0o600)
    assert files.read(directory / "a") is None
    files.write(directory / "a", b"code")
    assert files.read(directory / "a") == b"code"
    assert not key.is_symlink() and key.stat().st_mode & 0o777 == 0o600


def test_many_damaged_files_are_warned_of_once(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = SignedFiles(directory)
    for name in "abc":
        files.write(directory / name, b"code")
        os.truncate(directory / name, 3)
    with caplog.at_level(logging.WARNING, "lockstep"):
        assert [files.read(directory / name) for name in "abc"] == [None] * 3
    (record,) = caplog.records
    assert str(directory / "a") in record.getMessage() and "compiled again" in record.getMessage()


def test_a_file_is_on_the_disk_before_it_has_its_name(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(signed_files.os, "fsync", lambda d: (events.append("fsync"), fsync(d)))
    monkeypatch.setattr(signed_files.os, "replace", lambda a, b: (events.append("replace"), replace(a, b)))
    SignedFiles(directory).write(directory / "a", b"code")
    assert events[-2:] == ["fsync", "replace"]


def test_a_file_that_cannot_be_written_leaves_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SignedFiles(directory)
    files.write(directory / "a", b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(signed_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write(directory / "a", b"after")
    assert [p.name for p in directory.iterdir()] == ["a"] and files.read(directory / "a") == b"before"
