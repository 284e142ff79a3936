"""Runs a plan on one replica, inside of `shard_map`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._cpu.partitioner.communication import all_blocks, as_summand, own_block
from lockstep._cpu.partitioner.flat import Constant, Flat, Value
from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout
from lockstep._cpu.partitioner.schedule import Stage, Step
from lockstep._engine.step.jaxprs import bind
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS


def run_plan(
    flat: Flat,
    layouts: Mapping[Value, Layout],
    stages: Sequence[Stage],
    outs: Sequence[Layout],
    inputs: Sequence[Any],
    count: int,
    reduction: Reduction,
) -> list[Any]:
    """Returns this replica's outputs, lying as `outs` says."""
    frame = _Frame(layouts, count)
    for value, array in zip(flat.inputs, inputs, strict=True):
        frame.put(value, layouts[value], array)
    for stage in stages:
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

    def put(self, value: Value, layout: Layout, array: Any) -> None:
        """Notes a value."""
        self._held[value, layout.axis] = array

    def get(self, value: Value, layout: Layout) -> Any:
        """Returns a value in a layout; constants that are scalars stay what they are."""
        found = self._held.get((value, layout.axis))
        if found is None:
            found = self._held[value, layout.axis] = self._converted(value, layout)
        return found

    def array(self, value: Value, layout: Layout) -> Any:
        """Returns a value in a layout, as an array."""
        found = self.get(value, layout)
        return jnp.asarray(found, value.aval.dtype) if isinstance(value, Constant) else found

    def _converted(self, value: Value, layout: Layout) -> Any:
        if isinstance(value, Constant):
            whole: Any = value.value
        elif layout == REPLICATED:
            made = self._layouts[value]
            return all_blocks(self._held[value, made.axis], made.axis)
        else:
            whole = self.get(value, REPLICATED)
        if layout.is_sharded:
            return own_block(whole if isinstance(whole, jax.Array) else jnp.asarray(whole), layout.axis, self._count)
        return whole if layout == REPLICATED or value.is_zero else as_summand(whole)
