"""The loop, with programs that do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lockstep._engine.loop import loop
from lockstep._engine.runtime import progress
from lockstep._engine.runtime.preemption import Preemption
from lockstep._engine.step.batches import DeviceBatch, Outputs, Split, StepsPerExecutionTuner
from lockstep.errors import Preempted


class Program:
    """Adds up how many steps it was asked for."""

    def __init__(self, preemption: Preemption, places: list[str] | None = None, most: int = 4) -> None:
        self.runtime = SimpleNamespace(preemption=preemption)
        self._places = places if places is not None else []
        self._progress = preemption.progress
        self.tuner = StepsPerExecutionTuner()
        self.tuner.max_steps = self.max_steps = most

    def run(self, state: Any, placed: DeviceBatch) -> tuple[Outputs, Any]:
        self._places.append(self._progress.where)
        after = state + placed.steps
        return Outputs(after, None, lambda value: value), after


class State:
    """A number."""

    global_step = 40

    def __init__(self) -> None:
        self.value: Any = jnp.zeros(())

    def take(self) -> Any:
        return self.value

    def give(self, state: Any) -> None:
        self.value = state


class Listener:
    """Allows two steps in a dispatch, and does something after one of them."""

    def __init__(self, at: int = -1, act: Any = lambda: None, stop_at: int = -1) -> None:
        self._at, self._act, self._stop_at = at, act, stop_at
        self.seen: list[tuple[int, int]] = []

    def max_steps(self, step: int) -> int:
        del step
        return 2

    def before(self, step: int, steps: int) -> None:
        self.seen.append((step, steps))

    def after(self, step: int, outputs: Outputs) -> bool:
        if step >= self._at >= 0:
            self._act()
        return step >= self._stop_at >= 0


def chunks(*sizes: int) -> Iterator[DeviceBatch]:
    for size in sizes:
        yield DeviceBatch(np.zeros(size), Split.WHOLE, capacity=size, steps=size)


@pytest.fixture(autouse=True)
def marks(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What this process has done for the first time."""
    marks: dict[str, float] = {}
    monkeypatch.setattr(progress, "_marks", marks)
    return marks


def test_pieces_are_as_large_as_all_allow() -> None:
    preemption, state, listener = Preemption(), State(), Listener()
    assert loop.run(chunks(5, 1), Program(preemption), state, listener) == 6  # type: ignore[arg-type]
    assert listener.seen == [(0, 2), (2, 2), (4, 1), (5, 1)]
    assert float(state.value) == 6
    assert preemption.count == 4
    assert (preemption.progress.dispatches, preemption.progress.step) == (4, 46)


def test_it_is_known_where_the_main_thread_is(marks: dict[str, float]) -> None:
    preemption, places = Preemption(), list[str]()
    listener = Listener(0, lambda: places.append(preemption.progress.where))
    loop.run(chunks(2, 2), Program(preemption, places), State(), listener)  # type: ignore[arg-type]
    assert places == [progress.STEP, progress.CALLBACKS] * 2
    assert preemption.progress.where == progress.ELSEWHERE
    assert set(marks) == {"called", "stepped"}


def test_a_request_ends_it_between_two_dispatches() -> None:
    preemption, state = Preemption(), State()
    listener = Listener(3, preemption.request)
    with pytest.raises(Preempted):
        loop.run(chunks(8, 8), Program(preemption), state, listener)  # type: ignore[arg-type]
    assert listener.seen == [(0, 2), (2, 2)]
    assert float(state.value) == 4
    assert preemption.has_ended


def test_a_request_in_an_inner_loop_ends_the_outer_one() -> None:
    """As when a hook evaluates: the state of the training is that after the last of its steps."""
    preemption, state = Preemption(), State()
    inner = Listener(1, preemption.request)

    def evaluate() -> None:
        loop.run(chunks(8), Program(preemption), State(), inner)  # type: ignore[arg-type]

    with pytest.raises(Preempted):
        loop.run(chunks(8), Program(preemption), state, Listener(1, evaluate))  # type: ignore[arg-type]
    assert inner.seen == [(0, 2)]
    assert float(state.value) == 2


def test_all_steps_are_complete_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    wait = jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda value: waited.append(float(value)) or wait(value))
    preemption = Preemption()
    with pytest.raises(Preempted):
        loop.run(
            (DeviceBatch(np.zeros(1), Split.WHOLE) for _ in range(9)),
            Program(preemption),  # type: ignore[arg-type]
            State(),
            Listener(5, preemption.request),
        )
    assert sorted(set(waited)) == [1, 2, 3, 4, 5, 6]


def test_a_listener_stops_it() -> None:
    assert loop.run(chunks(8), Program(Preemption()), State(), Listener(stop_at=3)) == 4  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "pause"), [(0.1, 0.0005), (0.4, 0.001), (0.01, None)])
@pytest.mark.parametrize("steps", [1, 2])
def test_slow_dispatches_are_not_in_flight_together(
    monkeypatch: pytest.MonkeyPatch, steps: int, seconds: float, pause: float | None
) -> None:
    """Each holds a program's temporary memory on CPUs, until after its results are ready."""
    events: list[str] = []
    pauses: list[float] = []
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: 0.0, sleep=pauses.append))
    monkeypatch.setattr(loop, "is_done", lambda value: False)
    monkeypatch.setattr(jax, "block_until_ready", lambda value: events.append("wait"))
    # The very first one is always waited for.
    progress.mark("stepped")
    program = Program(Preemption())
    monkeypatch.setattr(program.tuner, "record", lambda *args, **kwargs: None)
    program.tuner.seconds = seconds
    run = program.run
    monkeypatch.setattr(program, "run", lambda *args: (events.append("run"), run(*args))[1])
    loop.run(chunks(steps, steps, steps), program, State(), Listener())  # type: ignore[arg-type]
    alone = ["run", "wait", "run", "wait", "run"]
    assert (events == alone) == (pause is not None)
    # A two-hundredth of the time, and a millisecond at most.
    assert pauses == ([] if pause is None else pytest.approx([pause] * 2))
