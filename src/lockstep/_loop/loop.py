"""The loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import jax

from lockstep._step.chunks import Pace
from lockstep._step.outputs import Outputs
from lockstep._step.placement import Placed
from lockstep._step.program import Program

# Steps that may be under way on the devices while Python goes on. More would only hold more batches in memory.
_IN_FLIGHT = 8


class State(Protocol):
    """Holds the state between steps; a listener may read or change it there."""

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


def run(batches: Iterable[Placed], program: Program, state: State, listener: Listener) -> int:
    """Runs the step program over `batches`, telling `listener`.

    Returns:
        The number of steps.
    """
    steps = 0
    in_flight = _InFlight(program.pace)
    for chunk in batches:
        done = 0
        while done < chunk.steps:
            piece = chunk.piece(done, min(chunk.steps - done, listener.room(steps), program.pace.most))
            listener.before(steps, piece.steps)
            outputs, after = program.run(state.take(), piece)
            state.give(after)
            in_flight.add(outputs.value, piece)
            done += piece.steps
            steps += piece.steps
            if listener.after(steps - 1, outputs):
                return steps
    return steps


class _InFlight:
    """The dispatches under way: a bounded number, and how long they take."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._waiting: deque[tuple[Any, Placed]] = deque()
        self._last = time.perf_counter()

    def add(self, outputs: Any, piece: Placed) -> None:
        """Adds one, after waiting for those before it: for single steps some, for many at once all but one."""
        self._waiting.append((outputs, piece))
        while len(self._waiting) > (1 if piece.places else _IN_FLIGHT):
            self._wait()

    def _wait(self) -> None:
        outputs, piece = self._waiting.popleft()
        jax.block_until_ready(outputs)
        now = time.perf_counter()
        if piece.places:
            self._pace.took(piece.steps, now - self._last)
        self._last = now
