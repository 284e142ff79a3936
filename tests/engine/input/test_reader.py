"""Readers of several tasks, as threads of this process, agree on every batch."""

from __future__ import annotations

import random
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.input.reader import Reader
from lockstep._engine.runtime.runtime import Runtime
from lockstep.errors import InputError, MismatchError
from tests.engine.input.on_host import OnHost

SECONDS = 30.0


class _Meeting:
    """An agreement between threads."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._answers: dict[int, dict[int, Any]] = defaultdict(dict)
        self._changed = threading.Condition()

    def agree(self, turn: int, task: int, value: Any) -> list[Any]:
        with self._changed:
            self._answers[turn][task] = value
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: len(self._answers[turn]) == self._tasks, SECONDS), "somebody waits"
            return [self._answers[turn][i] for i in range(self._tasks)]


class _Seat:
    """One thread's end of a meeting."""

    def __init__(self, meeting: _Meeting, task: int) -> None:
        self._meeting, self._task, self._turn = meeting, task, 0

    def all_gather_object(self, topic: str, value: Any) -> list[Any]:
        self._turn += 1
        return self._meeting.agree(self._turn, self._task, value)

    def close(self) -> None:
        pass


class _Task:
    """A task that reads a source of its own to its end."""

    def __init__(
        self,
        meeting: _Meeting,
        tasks: int,
        task: int,
        batches: Iterator[Any],
        limit: int | None,
        asks_after: int | None = None,
        together: int = 0,
    ) -> None:
        self.seen: list[Any] = []
        self.told_at: list[int] = []
        self._asks_after = asks_after
        self.error: BaseException | None = None
        # Without a control there is no transport; the seat stands in for it.
        self._runtime = Runtime(tuple(f"worker {i}" for i in range(tasks)), task)
        self._reader = Reader(batches, limit, OnHost(together), self._runtime, _Seat(meeting, task))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for chunk in self._reader:
                self.seen += chunk.data
                self._talk()
        except Exception as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "a reader hangs"
        self._reader.close()

    def _talk(self) -> None:
        if self._asks_after is not None and len(self.seen) >= self._asks_after:
            self._asks_after = None
            self._reader.broadcast("stop")
        if "stop" in self._reader.received:
            self._reader.received.discard("stop")
            self.told_at.append(len(self.seen))


def _read(sources: list[Iterator[Any]], limit: int | None = None, together: int = 0) -> list[_Task]:
    meeting = _Meeting(len(sources))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tasks = [_Task(meeting, len(sources), i, s, limit, together=together) for i, s in enumerate(sources)]
        for task in tasks:
            task.join()
    return tasks


def _batches(count: int, seed: int = 0, fails: bool = False) -> Iterator[np.ndarray]:
    pace = random.Random(seed)
    for i in range(count):
        if pace.random() < 0.2:
            threading.Event().wait(pace.random() * 0.01)  # A source of uneven speed.
        yield np.full(3, i)
    if fails:
        raise OSError("disk gone")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 25), min_size=2, max_size=3),
    limit=st.none() | st.integers(1, 20),
    seed=st.integers(0, 1000),
    together=st.sampled_from([0, 1, 4, 16]),
)
def test_all_end_after_the_shortest(lengths: list[int], limit: int | None, seed: int, together: int) -> None:
    tasks = _read([_batches(n, seed + i) for i, n in enumerate(lengths)], limit, together)
    expected = min([*lengths, *([] if limit is None else [limit])])
    for task in tasks:
        assert task.error is None
        assert [int(b[0]) for b in task.seen] == list(range(expected))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(0, 20), min_size=2, max_size=3), data=st.data(), seed=st.integers(0, 1000))
def test_an_error_reaches_all_at_the_same_batch(lengths: list[int], data: st.DataObject, seed: int) -> None:
    broken = data.draw(st.integers(0, len(lengths) - 1))
    tasks = _read([_batches(n, seed + i, fails=i == broken) for i, n in enumerate(lengths)])
    others = min(n for i, n in enumerate(lengths) if i != broken)
    if lengths[broken] == others:
        # The data of another task ends where this one breaks: what is found out first counts, for all.
        assert len({task.error is None for task in tasks}) == 1
    for i, task in enumerate(tasks):
        assert len(task.seen) == min(lengths)
        if lengths[broken] > others or (lengths[broken] == others and task.error is None):
            assert task.error is None
        elif i == broken:
            assert isinstance(task.error, OSError)
        else:
            assert isinstance(task.error, InputError)
            assert f"All tasks stop at batch {lengths[broken]}" in str(task.error)
            assert f"on worker {broken}: OSError: disk gone" in str(task.error)


def test_different_shapes_stop_all_before_the_batch() -> None:
    def sizes(*rows: int) -> Iterator[np.ndarray]:
        return iter([np.zeros((r, 2), "float32") for r in rows])

    for task in _read([sizes(4, 4, 4), sizes(4, 4, 3), sizes(4, 4, 4)]):
        assert isinstance(task.error, MismatchError)
        assert "Batch 2: worker 1" in str(task.error)
        assert "float32(3, 2)" in str(task.error) and "float32(4, 2)" in str(task.error)


def test_the_chief_says_whose_data_ended() -> None:
    meeting = _Meeting(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for task in [_Task(meeting, 2, i, _batches(n), None) for i, n in enumerate((5, 2))]:
            task.join()
    assert [str(w.message) for w in caught] == [
        "Every task should have the same number of batches. The data of worker 1 ended after 2 batches, so all tasks "
        "end there."
    ]


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.none() | st.integers(1, 20), min_size=2, max_size=4).filter(any), st.sampled_from([0, 1, 4]))
def test_what_one_asks_all_are_told_after_the_same_batch(asks: list[int | None], together: int) -> None:
    meeting = _Meeting(len(asks))
    tasks = [
        _Task(meeting, len(asks), number, iter([np.zeros(1)] * 120), None, asks_after=ask, together=together)
        for number, ask in enumerate(asks)
    ]
    for task in tasks:
        task.join()
        assert task.told_at == tasks[0].told_at
    told = tasks[0].told_at
    # As many times as there were words that no earlier telling covered, and soon.
    assert 1 <= len(told) <= sum(ask is not None for ask in asks)
    first = min(ask for ask in asks if ask is not None)
    assert first < told[0] <= first + 30
