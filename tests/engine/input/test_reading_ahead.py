"""How far a reader reads ahead, what it says at the end, and how it is stopped, over a real channel."""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.input import reader as reader_
from lockstep._engine.input.reader import Reader
from lockstep._engine.runtime import control as control_
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.runtime import Runtime
from lockstep.errors import PeerError
from tests.engine.input.on_host import OnHost
from tests.engine.runtime.jobs import eventually
from tests.engine.runtime.properties import steady
from tests.engine.runtime.store import controls

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits look up more often than they do between machines."""
    monkeypatch.setattr(control_, "_SLICE_SECONDS", 0.05)


def reader(batches: Iterator[Any], control: Control | None = None, limit: int | None = None) -> Reader:
    """A reader alone, or of one of several tasks."""
    runtime = Runtime(control.tasks, control.process, control) if control else Runtime()
    return Reader(batches, limit, OnHost(), runtime, runtime.channel("feed"))


def batches(count: int, pace: random.Random | None = None, taken: list[int] | None = None) -> Iterator[np.ndarray]:
    for i in range(count):
        if pace and pace.random() < 0.3:
            time.sleep(pace.random() * 0.02)  # A source of uneven speed.
        if taken is not None:
            taken.append(i)
        yield np.full(2, i)
    if pace:
        time.sleep(pace.random() * 0.02)


def read_all(found: list[Reader]) -> list[list[int]]:
    with ThreadPoolExecutor(len(found)) as threads:
        futures = [threads.submit(lambda r=r: [int(b[0]) for chunk in r for b in chunk.data]) for r in found]
        results = [f.result(PATIENCE) for f in futures]
    for each in found:
        each.close()
    return results


@pytest.mark.slow
@settings(steady, max_examples=40)
@given(st.integers(0, 12), st.integers(2, 3), st.integers(0, 9999))
def test_data_of_equal_length_is_not_called_uneven(length: int, tasks: int, seed: int) -> None:
    """However the speeds differ, and whoever finds the end first."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [reader(batches(length, random.Random(seed + i)), c) for i, c in enumerate(controls(tasks))]
        assert read_all(found) == [list(range(length))] * tasks


@pytest.mark.slow
@settings(steady, max_examples=30)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=3), st.integers(0, 9999))
def test_data_of_different_length_is_called_uneven(lengths: list[int], seed: int) -> None:
    here = enumerate(controls(len(lengths)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [reader(batches(n, random.Random(seed + i)), c) for n, (i, c) in zip(lengths, here, strict=True)]
        assert read_all(found) == [list(range(min(lengths)))] * len(lengths)
    told = [str(w.message) for w in caught]
    if len(set(lengths)) == 1:
        assert told == []
    else:
        ended = ", ".join(f"worker {i}" for i, n in enumerate(lengths) if n == min(lengths))
        assert [t for t in told if f"The data of {ended} ended after {min(lengths)} batches" in t] == told != []


@pytest.mark.parametrize("tasks", [1, 2])
def test_no_more_is_read_than_the_limit(tasks: int) -> None:
    taken: list[list[int]] = [[] for _ in range(tasks)]
    here = controls(tasks) if tasks > 1 else [None]
    found = [reader(batches(100, taken=t), c, limit=13) for t, c in zip(taken, here, strict=True)]
    assert read_all(found) == [list(range(13))] * tasks
    assert taken == [list(range(13))] * tasks


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_reader_is_only_some_batches_ahead(tasks: int) -> None:
    taken: list[int] = []
    here = controls(tasks) if tasks > 1 else [None]
    first, *others = [reader(batches(1000, taken=taken if i == 0 else None), c) for i, c in enumerate(here)]
    iterators = [iter(r) for r in (first, *others)]
    for _ in range(20):
        for each in iterators:
            next(each)
    eventually(lambda: first._ready.full(), lambda: "it reads ahead")
    assert len(taken) <= 20 + 2 * reader_._ROUND_BATCHES + reader_._PREFETCH
    for each in (first, *others):
        each.close()


def test_large_batches_are_agreed_on_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_, "_ROUND_BYTES", 10)
    taken: list[int] = []
    here = controls(2)
    alone = reader(batches(100, taken=taken), here[0])
    eventually(lambda: here[0].listing("feed/1"), lambda: "it offers what it has read")
    assert taken == [0]
    alone.close()


def _assert_closes(found: Reader, within: float = 5.0) -> None:
    began = time.monotonic()
    found.close()
    assert time.monotonic() - began < within


def test_closing_a_reader_that_waits_for_other_tasks() -> None:
    found = reader(batches(10), controls(2)[0])
    _assert_closes(found)
    assert not found._thread.is_alive()


def test_closing_a_reader_that_waits_for_the_loop() -> None:
    found = reader(batches(100))
    eventually(lambda: found._ready.full(), lambda: "it reads ahead")
    _assert_closes(found)
    assert not found._thread.is_alive()


def test_closing_a_reader_whose_source_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(reader_, "_ROUND_SECONDS", 0.0)
    returns = threading.Event()

    def stuck() -> Iterator[np.ndarray]:
        yield from batches(1)
        returns.wait(PATIENCE)
        yield from batches(1)

    here = controls(2)
    found = reader(stuck(), here[0])
    other = reader(batches(1), here[1])
    assert next(iter(found)).steps == 1
    _assert_closes(found)
    asked = here[0]._client.keys  # type: ignore[attr-defined]
    returns.set()
    eventually(lambda: not found._thread.is_alive(), lambda: "it ends when the source returns")
    assert here[0]._client.keys == asked, "what comes too late is not offered to the others"  # type: ignore[attr-defined]
    other.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_ends_a_source_reaches_the_loop(error: type[BaseException]) -> None:
    def source() -> Iterator[np.ndarray]:
        yield np.zeros(2)
        raise error

    found = reader(source())
    with pytest.raises(error):
        list(found)
    found.close()


def test_the_end_of_a_peer_reaches_the_loop() -> None:
    here = controls(2)
    found = reader(batches(10), here[0])
    here[1].announce_failure("OSError", "disk gone")
    with pytest.raises(PeerError, match="worker 1 failed first: OSError: disk gone"):
        list(found)
    found.close()


def test_what_cannot_be_placed_ends_the_reading() -> None:
    def refuse(batch: Any) -> None:
        raise MemoryError("no room")

    runtime = Runtime()
    found = Reader(batches(3), None, OnHost(watch=refuse), runtime, runtime.channel("feed"))
    with pytest.raises(MemoryError, match="no room"):
        list(found)
    found.close()
