"""Order of a plan's steps, and its run inside of `shard_map`.

As few reductions after each other as possible, each of as much as is due by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._cpu.partitioner.flat import Constant, Flat, Value
from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout, as_summand, gather_blocks, own_block
from lockstep._engine.step.jaxprs import bind
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS
from lockstep._types import Array


@dataclass(slots=True)
class Step:
    """An equation and the decision on it."""

    equation: Any
    decision: Any


@dataclass(slots=True)
class Stage:
    """Values that are added up over the replicas, all at once, and the steps that follow."""

    sums: list[Value] = field(default_factory=list[Value])
    steps: list[Step] = field(default_factory=list[Step])


Needs = Sequence[tuple[Value, Layout]]


def make_stages(steps: Sequence[Step], outputs: Needs, layouts: Mapping[Value, Layout]) -> list[Stage]:
    """Puts steps into stages."""
    # The number of stages is how often a sum depends on an earlier one, so it cannot be smaller. A sum is taken as late
    # as it may be without making that longer: all gradients, losses and metrics together, before the optimizer.
    order = _Order(layouts)
    last = order.earliest(steps, outputs)
    order.latest(steps, outputs, last)
    stages = [Stage() for _ in range(last + 1)]
    # As `Reduction` expects them: what is computed last, the gradients of the first layers, comes first.
    computed = [o for step in steps for o in step.equation.outputs if o in order.due]
    inputs = order.due.keys() - set(computed)
    for value in (*computed[::-1], *(v for v in order.due if v in inputs)):
        stages[order.due[value]].sums.append(value)
    for step in steps:
        stages[order.place(step)].steps.append(step)
    return stages


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
        """Notes by which stage each sum is needed."""
        for value, need in outputs:
            self._note(value, need, last)
        for step in reversed(steps):
            outs = step.equation.outputs
            # In time for the results, and a stage before those of them that are sums themselves.
            by = min((min(self._needed.get(o, last), self.due.get(o, last + 1) - 1) for o in outs), default=last)
            for value, need in _needs(step):
                self._note(value, need, by)

    def _note(self, value: Value, need: Layout, stage: int) -> None:
        found = self.due if self._is_summed(value, need) else self._needed
        found[value] = min(stage, found.get(value, stage))

    def place(self, step: Step) -> int:
        """Returns the stage in which a step can run: all that it needs is there."""
        stage = 0
        for value, need in _needs(step):
            ready = self.due[value] if self._is_summed(value, need) else self._placed.get(value, 0)
            # A sum is there in the stage that begins with it; other values in the stage that computes them.
            stage = max(stage, ready)
        self._placed.update(dict.fromkeys(step.equation.outputs, stage))
        return stage


def _needs(step: Step) -> Iterable[tuple[Value, Layout]]:
    return zip(step.equation.inputs, step.decision.needs, strict=True)


def run_plan(
    flat: Flat,
    layouts: Mapping[Value, Layout],
    stages: Sequence[Stage],
    outs: Sequence[Layout],
    inputs: Sequence[Any],
    count: int,
    reduction: Reduction,
) -> list[Any]:
    """Returns this replica's outputs, in the layouts of `outs`."""
    frame = _Frame(layouts, count)
    for value, array in zip(flat.inputs, inputs, strict=True):
        frame.put(value, layouts[value], array)
    for stage in stages:
        # The first stage mostly has none: what it needs was there before the step.
        if stage.sums:
            summands = [frame.get(value, PARTIAL) for value in stage.sums]
            for value, total in zip(stage.sums, reduction.sum(summands, AXIS, count), strict=True):
                frame.put(value, REPLICATED, total)
        for step in stage.steps:
            _run_step(frame, step)
    return [frame.array(value, layout) for value, layout in zip(flat.outputs, outs, strict=True)]


def _run_step(frame: _Frame, step: Step) -> None:
    equation, decision = step.equation, step.decision
    values = [frame.get(v, need) for v, need in zip(equation.inputs, decision.needs, strict=True)]
    # Under the settings of its trace: `with jax.default_matmul_precision(...)` in a step must hold here too.
    with equation.settings:
        if decision.run is not None:
            made = decision.run(values)
        else:
            made = bind(equation.primitive, values, equation.params if decision.params is None else decision.params)
    for value, layout, array in zip(equation.outputs, decision.outs, made, strict=True):
        frame.put(value, layout, array)


class _Frame:
    """The values of a program on this replica, in each of the layouts they have been needed in."""

    def __init__(self, layouts: Mapping[Value, Layout], count: int) -> None:
        self._layouts = layouts
        self._count = count
        self._held: dict[tuple[Value, int], Any] = {}

    def put(self, value: Value, layout: Layout, array: Array) -> None:
        """Notes a value."""
        self._held[value, layout.axis] = array

    def get(self, value: Value, layout: Layout) -> Any:
        """Returns a value in a layout; constants that are scalars stay what they are."""
        found = self._held.get((value, layout.axis))
        if found is None:
            # Kept: what several equations need in a layout is gathered once.
            found = self._held[value, layout.axis] = self._convert(value, layout)
        return found

    def array(self, value: Value, layout: Layout) -> Any:
        """Returns a value in a layout, as an array."""
        found = self.get(value, layout)
        return jnp.asarray(found, value.aval.dtype) if isinstance(value, Constant) else found

    def _convert(self, value: Value, layout: Layout) -> Any:
        if isinstance(value, Constant):
            whole: Any = value.value
        elif layout == REPLICATED:
            made = self._layouts[value]
            return gather_blocks(self._held[value, made.axis], made.axis)
        else:
            whole = self.get(value, REPLICATED)
        # To slice costs nothing, so a block is cut from the whole, and never sent.
        if layout.is_sharded:
            return own_block(whole if isinstance(whole, jax.Array) else jnp.asarray(whole), layout.axis, self._count)
        # A zero is its own summand; any other value is the first replica's alone, or it would count once for each.
        return whole if layout == REPLICATED or value.is_zero else as_summand(whole)
