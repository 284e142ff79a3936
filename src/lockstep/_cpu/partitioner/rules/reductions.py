"""Rules for what reduces axes of an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lockstep._cpu.partitioner.communication import everyones, replica_number
from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout, sharded, size_of
from lockstep._cpu.partitioner.rules.base import Call, Decision, does_not_grow, linear, passes_sums, rule
from lockstep._engine.step.jaxprs import bind


def _kept(axis: int, axes: Sequence[int]) -> Layout:
    return sharded(axis - sum(a < axis for a in axes))


@rule("reduce_sum")
def reduce_sum(call: Call) -> Decision | None:
    """Over the divided axis, each replica has a summand."""
    axis, axes = call.layouts[0].axis, call.params["axes"]
    return Decision(call.layouts, [PARTIAL if axis in axes else _kept(axis, axes)])


@linear("reduce_sum")
def sum_of_sum(call: Call) -> Decision | None:
    """The order of sums does not matter."""
    return passes_sums(call) if does_not_grow(call, [0]) else None


@rule("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def reduce_other(call: Call) -> Decision | None:
    """Over the divided axis: what each replica found is collected, and reduced once more."""
    axis, axes = call.layouts[0].axis, call.params["axes"]
    if axis not in axes:
        return Decision(call.layouts, [_kept(axis, axes)])
    equation = call.equation

    def run(values: Sequence[Any]) -> Sequence[Any]:
        (mine,) = bind(equation.primitive, values, equation.params)
        return bind(equation.primitive, [everyones(mine)], {**equation.params, "axes": (0,)})

    return Decision(call.layouts, [REPLICATED], run=run, gathered=call.count * size_of(equation.outputs[0].aval))


@rule("argmax", "argmin")
def argument(call: Call) -> Decision | None:
    """Over the divided axis: the best of the replicas' best ones, the first of equals."""
    axis, axes = call.layouts[0].axis, tuple(call.params["axes"])
    if axis not in axes:
        return Decision(call.layouts, [_kept(axis, axes)])
    equation = call.equation
    if len(axes) != 1:
        return None

    def run(values: Sequence[Any]) -> Sequence[Any]:
        (place,) = bind(equation.primitive, values, equation.params)
        best = jnp.take_along_axis(values[0], jnp.expand_dims(place, axis), axis).squeeze(axis)
        start = lax.convert_element_type(replica_number() * values[0].shape[axis], place.dtype)
        (winner,) = bind(equation.primitive, [everyones(best)], {**equation.params, "axes": (0,)})
        return [jnp.take_along_axis(everyones(place + start), winner[None], 0)[0]]

    each = math.prod(call.out_shape()) * (equation.inputs[0].aval.dtype.itemsize + 4)
    return Decision(call.layouts, [REPLICATED], run=run, gathered=call.count * each)


@rule("reduce")
def reduce(call: Call) -> Decision | None:
    """With a function of the user's, over other axes."""
    axes, arrays = call.params["dimensions"], len(call.layouts) // 2
    divided = [layout for layout in call.layouts[:arrays] if layout.is_sharded]
    if not divided or any(layout.is_sharded for layout in call.layouts[arrays:]) or divided[0].axis in axes:
        return None
    needs = [divided[0]] * arrays + [REPLICATED] * arrays
    return Decision(needs, [_kept(divided[0].axis, axes)] * arrays)
