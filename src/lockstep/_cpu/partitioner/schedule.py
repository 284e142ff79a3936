"""In what order a plan runs: as few reductions after each other as possible, each of as much as is due by then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep._cpu.partitioner.flat import Value
from lockstep._cpu.partitioner.layout import PARTIAL, Layout


@dataclass(slots=True)
class Step:
    """An equation and what was decided on it."""

    equation: Any
    decision: Any


@dataclass(slots=True)
class Stage:
    """Values that are added up over the replicas, all at once, and the steps that follow."""

    sums: list[Value] = field(default_factory=list[Value])
    steps: list[Step] = field(default_factory=list[Step])


Needs = Sequence[tuple[Value, Layout]]


def staged(steps: Sequence[Step], outputs: Needs, layouts: Mapping[Value, Layout]) -> list[Stage]:
    """Puts steps into stages.

    The number of stages is how often a sum depends on an earlier one, so it cannot be smaller. A sum is taken as late
    as it may be without making that longer: all gradients, losses and metrics together, before the optimizer.

    Args:
        steps: In the order of the program.
        outputs: What the program returns, and how it has to lie.
        layouts: How each value is computed.
    """
    order = _Order(layouts)
    last = order.earliest(steps, outputs)
    order.latest(steps, outputs, last)
    stages = [Stage() for _ in range(last + 1)]
    for value in _in_order(order.due, steps):
        stages[order.due[value]].sums.append(value)
    for step in steps:
        stages[order.place(step)].steps.append(step)
    return stages


def _in_order(sums: Mapping[Value, int], steps: Sequence[Step]) -> list[Value]:
    """Sums as `Reduction` expects them: what is computed last, the gradients of the first layers, comes first."""
    made = [o for step in steps for o in step.equation.outputs if o in sums]
    inputs = sums.keys() - set(made)
    return [*made[::-1], *(v for v in sums if v in inputs)]


class _Order:
    def __init__(self, layouts: Mapping[Value, Layout]) -> None:
        self._layouts = layouts
        self._made: dict[Value, int] = {}
        self._needed: dict[Value, int] = {}
        self._placed: dict[Value, int] = {}
        self.due: dict[Value, int] = {}
        """The stage that each sum is taken in."""

    def _is_summed(self, value: Value, need: Layout) -> bool:
        return need != PARTIAL and self._layouts.get(value) == PARTIAL

    def earliest(self, steps: Sequence[Step], outputs: Needs) -> int:
        """Returns the number of the last stage."""
        made = self._made
        last = 0
        for step in steps:
            stage = self._after(_needs(step))
            last = max(last, stage)
            made.update(dict.fromkeys(step.equation.outputs, stage))
        return max(last, self._after(outputs))

    def _after(self, needs: Iterable[tuple[Value, Layout]]) -> int:
        return max((self._made.get(v, 0) + self._is_summed(v, need) for v, need in needs), default=0)

    def latest(self, steps: Sequence[Step], outputs: Needs, last: int) -> None:
        """Finds out by when each sum is needed."""
        for value, need in outputs:
            self._note(value, need, last)
        for step in reversed(steps):
            outs = step.equation.outputs
            by = min((min(self._needed.get(o, last), self.due.get(o, last + 1) - 1) for o in outs), default=last)
            for value, need in _needs(step):
                self._note(value, need, by)

    def _note(self, value: Value, need: Layout, stage: int) -> None:
        found = self.due if self._is_summed(value, need) else self._needed
        found[value] = min(stage, found.get(value, stage))

    def place(self, step: Step) -> int:
        """The stage in which a step can run: all that it needs is there."""
        stage = 0
        for value, need in _needs(step):
            ready = self.due[value] if self._is_summed(value, need) else self._placed.get(value, 0)
            stage = max(stage, ready)
        self._placed.update(dict.fromkeys(step.equation.outputs, stage))
        return stage


def _needs(step: Step) -> Iterable[tuple[Value, Layout]]:
    return zip(step.equation.inputs, step.decision.needs, strict=True)
