"""Compiled programs on disk: whole or not there, bounded, of one machine."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._runtime import signed_files
from lockstep._runtime.compiled_programs import CompiledPrograms

_LIMIT = 1 << 20


def _store(directory: Path, machine: str = "a machine", limit: int = _LIMIT) -> CompiledPrograms:
    return CompiledPrograms(directory, machine, limit)


def _files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


@given(key=st.text(max_size=300), value=st.binary(max_size=2000))
def test_what_was_put_comes_back(tmp_path_factory: pytest.TempPathFactory, key: str, value: bytes) -> None:
    directory = tmp_path_factory.mktemp("programs")
    _store(directory).put(key, value)
    assert _store(directory).get(key) == value
    assert _store(directory).get(key + "x") is None
    assert _store(directory, "another machine").get(key) is None


def test_the_last_one_put_counts_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.put("key", b"first")
    store.put("key", b"second")
    assert store.get("key") == b"second"
    (file,) = _files(tmp_path)
    assert file.stat().st_mode & 0o077 == 0


@given(data=st.data())
def test_a_damaged_entry_is_none_and_makes_room_for_another(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = _store(directory := tmp_path_factory.mktemp("programs"))
    store.put("key", b"machine code")
    (file,) = _files(directory)
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)
    assert store.get("key") is None
    store.done()
    assert not _files(directory)
    store.put("key", b"machine code")
    assert store.get("key") == b"machine code"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store(tmp_path)

    def full(descriptor: int, mode: str) -> Any:
        os.close(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(signed_files.os, "fdopen", full)
    store.put("key", b"value")
    assert not _files(tmp_path)
    assert store.get("key") is None


def test_a_directory_that_is_gone_is_no_error(tmp_path: Path) -> None:
    store = _store(tmp_path / "gone")
    store.put("key", b"value")
    assert store.get("key") is None


def test_those_not_used_for_longest_make_room(tmp_path: Path) -> None:
    store = _store(tmp_path, limit=10_000)
    for i in range(6):
        store.put(f"old {i}", bytes(1000))
        os.utime(max(_files(tmp_path), key=lambda f: f.stat().st_ctime_ns), (1e9 + i, 1e9 + i))
    assert store.get("old 0") == bytes(1000)  # Used now, so it stays.
    for i in range(30):
        store.put(f"new {i}", bytes(1000))
        assert sum(f.stat().st_size for f in _files(tmp_path)) <= 10_000
    assert [store.get(f"old {i}") for i in range(1, 6)] == [None] * 5
    assert store.get("new 29") == bytes(1000)


def test_another_process_entries_count(tmp_path: Path) -> None:
    mine, other = _store(tmp_path, limit=10_000), _store(tmp_path, limit=10_000)
    for i in range(20):
        (mine if i % 2 else other).put(f"{i}", bytes(900))
    assert sum(f.stat().st_size for f in _files(tmp_path)) <= 2 * 10_000
    _store(tmp_path, limit=10_000).put("one more", bytes(900))
    assert sum(f.stat().st_size for f in _files(tmp_path)) <= 10_000


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    store = _store(tmp_path, limit=1000)
    store.put("small", bytes(10))
    store.put("large", bytes(2000))
    assert store.get("large") is None
    store.done()
    assert store.get("small") == bytes(10)


def test_files_left_by_writers_that_died_go(tmp_path: Path) -> None:
    young, old = tmp_path / "partial-young", tmp_path / "partial-old"
    for path in (young, old):
        path.write_bytes(bytes(5000))
    os.utime(old, (1e9, 1e9))
    store = _store(tmp_path, limit=6000)
    store.put("key", bytes(2000))
    assert young.exists()
    assert not old.exists()
    assert store.get("key") == bytes(2000)


def test_many_writers_at_once(tmp_path: Path) -> None:
    values = [bytes([i]) * 5000 for i in range(4)]
    wrong: list[bytes] = []

    def write(value: bytes) -> None:
        store = _store(tmp_path)
        for _ in range(50):
            store.put("key", value)
            found = store.get("key")
            if found not in values:
                wrong.append(found or b"")

    threads = [threading.Thread(target=write, args=(v,)) for v in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert len(_files(tmp_path)) == 1
