"""Processes find each other, or agree that they do not; here they are threads."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep._cpu import targets
from lockstep._cpu.shared_memory import all_reduce, bootstrap, shm
from lockstep.errors import ArgumentError

_CAPACITY = 4096


class _Runtime:
    """One of several threads that agree as tasks do."""

    def __init__(self, process: int, count: int, said: dict[str, list[Any]], barrier: threading.Barrier) -> None:
        self.process = process
        self.tasks = tuple(f"worker {i}" for i in range(count))
        self.is_alone = False
        self._said = said
        self._barrier = barrier

    def all_gather_object(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        del seconds
        self._said.setdefault(topic, [None] * len(self.tasks))[self.process] = value
        self._barrier.wait(30)
        return self._said[topic]


def _connect(count: int, wanted: Callable[[int], bool] = lambda _: True) -> list[Any]:
    said: dict[str, list[Any]] = {}
    barrier = threading.Barrier(count)
    runtimes: list[Any] = [_Runtime(i, count, said, barrier) for i in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda r: bootstrap.connect(r, _CAPACITY, 30.0, wanted(r.process)), runtimes))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The directories in which processes meet are gone afterwards."""
    with tempfile.TemporaryDirectory() as own:
        monkeypatch.setattr(tempfile, "tempdir", own)
        yield
        assert os.listdir(own) == []


@pytest.mark.parametrize("count", [2, 3, 5])
def test_what_one_writes_the_others_read(count: int) -> None:
    found = _connect(count)
    for process, (_, segments) in enumerate(found):
        segments[process].contribution(0, 0, 4, np.dtype("int8"))[:] = process + 1
    for connections, segments in found:
        assert [int(a.contribution(0, 0, 4, np.dtype("int8"))[3]) for a in segments] == list(range(1, count + 1))
        for other in connections.others:
            with pytest.raises(ValueError, match="read-only"):
                segments[other].contribution(0, 0, 4, np.dtype("int8"))[:] = 0
        connections.send(0, 7)
    assert {connections.receive(other, 0) for connections, _ in found for other in connections.others} == {7}
    for connections, _ in found:
        connections.close()


def test_if_one_does_not_want_to_none_does() -> None:
    assert _connect(3, wanted=lambda process: process != 1) == [None] * 3


def test_processes_of_different_machines_do_not_try(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boots = iter(range(3))

    class Boot:
        def exists(self) -> bool:
            return True

        def read_text(self) -> str:
            return str(next(boots))

    monkeypatch.setattr(bootstrap, "_BOOT", Boot())
    assert _connect(2) == [None] * 2


@pytest.mark.parametrize("name", ["x" * 120, "a%41", "a#b?c"])
def test_they_meet_in_a_directory_of_any_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as directory:
        odd = os.path.join(directory, name)
        os.mkdir(odd)
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "tempdir", odd)
            found = _connect(2)
        assert os.listdir(odd) == []
    for connections, _ in found:
        connections.close()


def test_without_a_place_to_meet_none_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        assert _connect(2) == [None] * 2


def test_a_stranger_is_not_let_in(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    dial = bootstrap._dial

    def forged(offer: Any, process: int, deadline: float) -> socket.socket:
        return dial({**offer, "token": "00" * 16}, process, deadline)

    monkeypatch.setattr(bootstrap, "_dial", forged)
    with caplog.at_level(logging.DEBUG, "lockstep"):
        assert _connect(2) == [None] * 2
    assert "a stranger has connected" in caplog.text


def test_shared_memory_keeps_its_size() -> None:
    descriptor = shm.create(_CAPACITY)
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("value", "expected"), [("0", False), ("1", True), ("", True)])
def test_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv(all_reduce.VARIABLE, value)
    assert all_reduce.is_wanted() is expected


def test_other_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(all_reduce.VARIABLE, "yes")
    with pytest.raises(ArgumentError, match="must be 1"):
        all_reduce.is_wanted()


def test_a_jax_without_foreign_functions_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    assert targets.is_supported()
    monkeypatch.delattr(jax.ffi, "register_ffi_target")
    assert not targets.is_supported()
