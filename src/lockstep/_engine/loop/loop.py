"""The loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import jax

from lockstep._engine.runtime import progress, progress_file
from lockstep._engine.runtime.in_flight import is_done
from lockstep._engine.step.batches import DeviceBatch
from lockstep._engine.step.protocol import Program
from lockstep._engine.step.steps_per_execution import Outputs, StepsPerExecutionTuner
from lockstep.errors import Preempted

# Steps that may be under way on the devices while Python goes on. More would only hold more batches in memory.
_IN_FLIGHT = 8


class State(Protocol):
    """Holds the state between steps; a listener may read or change it there."""

    @property
    def global_step(self) -> int | None:
        """The number of the last step, which goes on counting where another process has ended; `None` if unknown."""
        ...

    def take(self) -> Any:
        """Hands the state to a step, which consumes it."""
        ...

    def give(self, state: Any) -> None:
        """Takes the state that a step returned."""
        ...


class Listener(Protocol):
    """What wants to know about steps, and may ask to stop."""

    def room(self, step: int) -> int:
        """Returns how many steps, from `step` on, one dispatch may run: at least 1."""
        ...

    def before(self, step: int, steps: int) -> None:
        """A dispatch of so many steps, from `step` on (0 for an epoch's first), is about to start."""
        ...

    def after(self, step: int, outputs: Outputs) -> bool:
        """A dispatch that ends with `step` has started; returns whether to stop."""
        ...


def run(batches: Iterable[DeviceBatch], program: Program, state: State, listener: Listener) -> int:
    """Runs the step program over `batches`, telling `listener`.

    Returns:
        The number of steps.

    Raises:
        Preempted: If a task was asked to end, between two dispatches, on all tasks the same ones. All steps before
            are complete, and `state` holds what they came to.
    """
    return _Loop(program, state, listener).run(batches)


class _Loop:
    """One run."""

    def __init__(self, program: Program, state: State, listener: Listener) -> None:
        self._program = program
        self._state = state
        self._listener = listener
        self._steps = 0
        self._preemption = program.runtime.preemption
        self._progress = self._preemption.progress
        self._in_flight = _InFlight(program.tuner, self._progress)

    def run(self, batches: Iterable[DeviceBatch]) -> int:
        self._progress.begin(self._state.global_step)
        with self._progress.being(progress.ELSEWHERE):
            try:
                self._run(batches)
            except Preempted:
                self._in_flight.settle()
                self._preemption.ended()
                raise
        return self._steps

    def _run(self, batches: Iterable[DeviceBatch]) -> None:
        for chunk in batches:
            done = 0
            while done < chunk.steps:
                self._preemption.gate()
                room = self._listener.room(self._steps)
                piece = chunk.slice_steps(done, min(chunk.steps - done, room, self._program.max_steps))
                done += piece.steps
                if self._dispatch(piece):
                    return

    def _dispatch(self, piece: DeviceBatch) -> bool:
        """Starts the steps of a piece; returns whether to stop after them."""
        at, state = self._progress.at, self._state
        at(progress.CALLBACKS)
        self._listener.before(self._steps, piece.steps)
        at(progress.STEP)
        progress_file.mark("called")
        outputs, after = self._program.run(state.take(), piece)
        state.give(after)
        self._note(piece, outputs)
        self._in_flight.add(outputs.value, piece)
        self._steps += piece.steps
        at(progress.CALLBACKS)
        stop = self._listener.after(self._steps - 1, outputs)
        at(progress.ELSEWHERE)
        return stop

    def _note(self, piece: DeviceBatch, outputs: Outputs) -> None:
        """Notes how far this task is; the first step of all is waited for, to tell when training goes on."""
        self._progress.dispatched(piece.steps)
        is_first = not progress_file.has("stepped")
        if is_first:
            jax.block_until_ready(outputs.value)
            progress_file.mark("stepped")
        progress_file.write(self._progress, at_once=is_first)


class _InFlight:
    """The dispatches under way: a bounded number, and how long they take."""

    def __init__(self, pace: StepsPerExecutionTuner, account: progress.Progress) -> None:
        self._tuner = pace
        self._account = account
        self._waiting: deque[tuple[Any, DeviceBatch]] = deque()
        self._last = time.perf_counter()

    def add(self, outputs: Any, piece: DeviceBatch) -> None:
        """Adds one, after waiting for those before it: for single steps some, for many at once all but one.

        Those that are done are taken note of now: where a call runs its program at once, also the one just added.
        """
        self._account.at(progress.DEVICES)
        self._waiting.append((outputs, piece))
        most = 1 if piece.capacity else _IN_FLIGHT
        while self._waiting and (len(self._waiting) > most or all(map(is_done, jax.tree.leaves(self._waiting[0][0])))):
            self._wait()

    def settle(self) -> None:
        """Waits for all."""
        self._account.at(progress.DEVICES)
        while self._waiting:
            jax.block_until_ready(self._waiting.popleft()[0])

    def _wait(self) -> None:
        outputs, piece = self._waiting.popleft()
        jax.block_until_ready(outputs)
        now = time.perf_counter()
        if piece.capacity:
            self._tuner.record(piece.steps, now - self._last)
        self._last = now
