"""What a process knows about the others, with tasks as threads."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import pytest

from lockstep._engine.runtime import control as control_
from lockstep._engine.runtime import join, randomness
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.heartbeat import HeartbeatMonitor
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.runtime import Runtime
from lockstep.errors import MismatchError, PeerError
from tests.engine.runtime.store import Store, controls

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits look up more often than they do between machines."""
    monkeypatch.setattr(control_, "_SLICE_SECONDS", 0.05)


class _Suspicious(HeartbeatMonitor):
    """Knows at once who is silent."""

    def __init__(self, control: Control, silent: list[int]) -> None:
        super().__init__(control, Limits())
        self._silent_ones = silent

    def suspects(self) -> list[int]:
        return self._silent_ones


def runtimes(tasks: int, silent: list[int] | None = None, store: Store | None = None) -> list[Runtime]:
    return [
        Runtime(c.tasks, c.process, c, _Suspicious(c, silent or []), Limits(peer=5.0)) for c in controls(tasks, store)
    ]


def on_all(found: list[Runtime], call: Callable[[Runtime], Any]) -> list[Future[Any]]:
    """Makes the call on a thread for each task, and waits for all."""
    with ThreadPoolExecutor(len(found)) as threads:
        futures = [threads.submit(call, r) for r in found]
        for future in futures:
            future.exception(PATIENCE)
    return futures


def test_a_process_alone_agrees_with_itself() -> None:
    alone = Runtime()
    assert alone.is_alone and alone.is_chief
    assert alone.all_gather_object("topic", {"a": 1}) == [{"a": 1}]
    alone.check_same("settings", 1, "")
    channel = alone.channel("feed")
    assert channel.all_gather_object("topic", 2) == [2]
    channel.close()
    assert alone.stops_here(True) is True and alone.stops_here(False) is False
    with pytest.raises(KeyError), alone.collective_region("fit"):
        raise KeyError("as it is")


def test_the_first_is_the_chief() -> None:
    found = runtimes(3)
    assert [r.is_chief for r in found] == [True, False, False]
    assert not any(r.is_alone for r in found)


def test_what_must_be_equal() -> None:
    found = runtimes(3)
    for future in on_all(found, lambda r: r.check_same("settings", {"epochs": 2}, "Advice.")):
        assert future.exception() is None
    for future in on_all(found, lambda r: r.check_same("settings", {"epochs": 2 + (r.process == 1)}, "Advice.")):
        assert isinstance(future.exception(), MismatchError)
        told = "All tasks must have the same settings. worker 1: epochs is 3, but 2 on worker 0. Advice."
        assert str(future.exception()) == told


def test_a_difference_is_not_announced_as_the_failure_of_one() -> None:
    found = runtimes(2)

    def differ(task: Runtime) -> None:
        with task.collective_region("fit"):
            task.check_same("settings", task.process, "")

    for future in on_all(found, differ):
        assert isinstance(future.exception(), MismatchError)
    assert controls(1, found[0]._control._client)[0].listing("status") == {}  # type: ignore[union-attr,arg-type]
    assert [f.result() for f in on_all(found, lambda r: r.all_gather_object("again", 1))] == [[1, 1]] * 2


def test_an_error_here_ends_the_call_everywhere() -> None:
    def call(task: Runtime) -> None:
        with task.collective_region("fit"):
            if task.process == 2:
                raise OSError("disk gone")
            task.all_gather_object("the next batch", 1)

    first, second, third = (f.exception() for f in on_all(runtimes(3), call))
    assert isinstance(third, OSError)
    for error in (first, second):
        assert isinstance(error, PeerError)
        assert str(error) == "worker 2 failed first: OSError: disk gone"


def _broken_by(task: Runtime, error: BaseException) -> BaseException:
    with pytest.raises(BaseException) as caught, task.collective_region("fit"):
        raise error
    return caught.value


_GLOO = (
    "UNKNOWN: Gloo all-reduce failed: [external/gloo/pair.cc:538] Read error [127.0.0.1]:1: Connection reset by peer"
)


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, jax.errors.JaxRuntimeError])
def test_a_broken_collective_is_put_down_to_who_is_silent(kind: type[Exception]) -> None:
    (first, _, _) = runtimes(3, silent=[2])
    error = kind(_GLOO)
    found = _broken_by(first, error)
    assert isinstance(found, PeerError)
    assert str(found).startswith("worker 2 has gone: its process ended without a word")
    assert found.__cause__ is error


def test_a_broken_collective_is_put_down_to_what_was_announced() -> None:
    (first, second) = runtimes(2, silent=[1])
    _broken_by(second, OSError("disk gone"))
    assert str(_broken_by(first, ValueError(_GLOO))) == "worker 1 failed first: OSError: disk gone"


def test_a_broken_collective_without_the_service_is_put_down_to_the_first_task() -> None:
    store = Store()
    _, second = runtimes(2, store=store)
    store.gone = True
    assert str(_broken_by(second, ValueError(_GLOO))) == "worker 0 has gone: its process ended without a word."


@pytest.mark.parametrize(
    "error", [ValueError("INTERNAL error"), KeyError("UNKNOWN: "), ValueError(""), jax.errors.JaxRuntimeError("OOM")]
)
def test_any_other_error_stays_what_it_is(error: Exception) -> None:
    silent = [1] if not isinstance(error, jax.errors.JaxRuntimeError) else []
    assert _broken_by(runtimes(2, silent)[0], error) is error


def test_all_stop_together() -> None:
    def stop(task: Runtime) -> bool:
        with task.collective_region("fit"):
            return task.stops_here(True)

    assert [f.result() for f in on_all(runtimes(3), stop)] == [True] * 3


def test_all_draw_what_the_chief_draws() -> None:
    before = randomness.snapshot()
    first, second = runtimes(2)
    try:
        random.seed(1)
        with ThreadPoolExecutor(1) as threads:
            # One after the other: they share this process' generators.
            chief = threads.submit(join.follow_chief_randomness, first)
            control_._SLICE_SECONDS = 0.05
            while not second._control.listing("calls/1"):  # type: ignore[union-attr]
                assert not chief.done()
            expected = randomness.snapshot()
            random.seed(2)
            join.follow_chief_randomness(second)
            chief.result(PATIENCE)
        assert randomness.snapshot() == expected
    finally:
        randomness.restore(before)
