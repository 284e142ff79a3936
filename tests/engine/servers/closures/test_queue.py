"""The queue of a coordinator: order, retries, errors and limits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lockstep._engine.servers.closures.queue import Closure, ClosureQueue
from lockstep.errors import CancelledError, PeerError


class _Made:
    def __init__(self, queue: ClosureQueue) -> None:
        self.results: dict[int, Any] = {}
        self.queue = queue

    def put(self) -> Closure:
        def make(ticket: int) -> Closure:
            return Closure(ticket, "f", _never, lambda found: self._set(ticket, found), lambda e: self._set(ticket, e))

        return self.queue.put(make)

    def _set(self, ticket: int, value: Any) -> None:
        self.results[ticket] = value


def _never(worker: int) -> Any:
    raise AssertionError(worker)


def _nothing() -> None:
    pass


def test_closures_are_taken_in_order_and_finish_in_any() -> None:
    made = _Made(ClosureQueue())
    queue = made.queue
    for _ in range(3):
        made.put()
    first, second = queue.take(0), queue.take(0)
    assert first is not None and second is not None
    assert (first.ticket, second.ticket, queue.finished_below) == (0, 1, 0)
    queue.finish(second, {})
    assert queue.finished_below == 0 and not queue.is_idle
    queue.finish(first, {})
    assert queue.finished_below == 2
    third = queue.take(0)
    assert third is not None and queue.take(0) is None
    queue.finish(third, {})
    queue.join(_nothing)
    assert queue.is_idle and queue.finished_below == 3


def test_what_a_worker_does_not_finish_comes_first() -> None:
    made = _Made(ClosureQueue())
    for _ in range(2):
        made.put()
    for attempt in range(1, 10):
        closure = made.queue.take(0)
        assert closure is not None and (closure.ticket, closure.attempts) == (0, attempt)
        made.queue.put_back(closure, PeerError("gone"))
    last = made.queue.take(0)
    assert last is not None
    made.queue.put_back(last, PeerError("gone for the tenth time"))
    with pytest.raises(PeerError, match="tenth"):
        made.queue.join(_nothing)
    assert isinstance(made.results[1], CancelledError)


def test_what_is_put_back_stays_in_order() -> None:
    made = _Made(ClosureQueue())
    for _ in range(4):
        made.put()
    first, second = made.queue.take(0), made.queue.take(0)
    assert first is not None and second is not None
    for closure in (first, second):
        made.queue.put_back(closure, PeerError("gone"))
    assert made.queue.finished_below == 0
    again = [made.queue.take(0) for _ in range(4)]
    assert [closure.ticket for closure in again if closure is not None] == [0, 1, 2, 3]


def test_an_error_is_raised_once_when_nothing_is_under_way() -> None:
    made = _Made(ClosureQueue())
    for _ in range(4):
        made.put()
    first, second = made.queue.take(0), made.queue.take(0)
    assert first is not None and second is not None
    made.queue.fail(first, ValueError("of the function"))
    assert isinstance(made.results[2], CancelledError) and isinstance(made.results[3], CancelledError)
    assert made.queue.take(0) is None
    timer = threading.Timer(0.05, made.queue.finish, [second, {}])
    timer.start()
    with pytest.raises(ValueError, match="of the function"):
        made.queue.check()
    assert made.results[1] == {}
    made.queue.check()
    assert made.put().ticket == 4


def test_staleness_bounds_how_far_the_first_one_is_behind() -> None:
    made = _Made(ClosureQueue(staleness=1))
    for _ in range(3):
        made.put()
    first, second = made.queue.take(0), made.queue.take(0)
    assert first is not None and second is not None and made.queue.take(0) is None
    made.queue.finish(second, {})
    assert made.queue.take(0) is None
    made.queue.finish(first, {})
    assert made.queue.take(0) is not None
