"""The loop."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import jax

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

    def before(self, step: int) -> None:
        """A dispatch that begins with `step` (0 for an epoch's first) is about to start."""
        ...

    def after(self, step: int, outputs: list[Any]) -> bool:
        """A dispatch that ends with `step` has started, with an output for each step; returns whether to stop."""
        ...


def run(batches: Iterable[Placed], program: Program, state: State, listener: Listener, stride: int = 1) -> int:
    """Runs the step program over `batches`, telling `listener` every `stride` steps.

    Returns:
        The number of steps.
    """
    steps = 0
    in_flight: deque[Any] = deque()
    for group in _groups(batches, stride):
        listener.before(steps)
        outputs = [_step(program, state, batch) for batch in group]
        _bound(in_flight, outputs)
        last = steps + stride - 1
        steps += len(group)
        if listener.after(last, outputs):
            break
    return steps


def _step(program: Program, state: State, batch: Placed) -> Any:
    outputs, after = program(state.take(), batch)
    state.give(after)
    return outputs


def _bound(in_flight: deque[Any], outputs: list[Any]) -> None:
    in_flight.append(outputs)
    if len(in_flight) > _IN_FLIGHT:
        jax.block_until_ready(in_flight.popleft())


def _groups(batches: Iterable[Placed], size: int) -> Iterator[list[Placed]]:
    iterator = iter(batches)
    while group := list(itertools.islice(iterator, size)):
        yield group
