"""Rules for what sums over axes or windows: matrix products, convolutions, reductions, pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lockstep._cpu.partitioner.layout import (
    PARTIAL,
    REPLICATED,
    Layout,
    gather_replicas,
    replica_number,
    sharded,
    size_of,
)
from lockstep._cpu.partitioner.rules.base import Call, Decision, does_not_grow, linear, passes_sums, rule
from lockstep._engine.step.jaxprs import bind


@rule("dot_general")
def dot_general(call: Call) -> Decision | None:
    """Shards a batch axis, an axis of either operand alone, or one that is summed over."""
    left, right = call.layouts
    if left.is_sharded and right.is_sharded and _partner(call, 0, left.axis) != right.axis:
        # Only one axis of the product can be divided. The smaller operand is cheaper to have whole.
        stays = 0 if call.size(0) >= call.size(1) else 1
    else:
        stays = 0 if left.is_sharded else 1
    return _with_layout_of(call, stays)


def _partner(call: Call, side: int, axis: int) -> int | None:
    """Returns the axis of the other operand that goes with one of this operand."""
    contracted, batch = call.params["dimension_numbers"]
    pairs = [*zip(contracted[side], contracted[1 - side], strict=True), *zip(batch[side], batch[1 - side], strict=True)]
    return next((theirs for mine, theirs in pairs if mine == axis), None)


def _with_layout_of(call: Call, side: int) -> Decision:
    """Decides for the layout that operand `side` has."""
    contracted, batch = call.params["dimension_numbers"]
    layout = call.layouts[side]
    partner = _partner(call, side, layout.axis)
    other = REPLICATED if partner is None else sharded(partner)
    needs = [layout, other] if side == 0 else [other, layout]
    if layout.axis in contracted[side]:
        return Decision(needs, [PARTIAL])
    if layout.axis in batch[side]:
        return Decision(needs, [sharded(tuple(batch[side]).index(layout.axis))])
    free = [[a for a in range(len(call.shape(s))) if a not in contracted[s] and a not in batch[s]] for s in range(2)]
    place = len(batch[0]) + free[side].index(layout.axis) + (len(free[0]) if side == 1 else 0)
    return Decision(needs, [sharded(place)])


@rule("conv_general_dilated")
def convolution(call: Call) -> Decision | None:
    """Shards the examples: the batch of the forward pass, what is summed over in the gradient of a kernel."""
    params = call.params
    numbers = params["dimension_numbers"]
    image, kernel = call.layouts
    examples, channels = numbers.lhs_spec[0], numbers.lhs_spec[1]
    if image.is_sharded and image.axis == examples:
        # Groups of examples have kernels of their own, and a replica's block is no such group. The gradient of a
        # depthwise kernel comes so, with as many groups as channels.
        if params["batch_group_count"] != 1:
            return None
        return Decision([image, REPLICATED], [sharded(numbers.out_spec[0])])
    summed = (sharded(channels), sharded(numbers.rhs_spec[1]))
    # Either of the two may be on all replicas, and is sliced then.
    either = (summed, (summed[0], REPLICATED), (REPLICATED, summed[1]))
    # With groups of channels each output sums over its own group, and no replica's block is one.
    if (image, kernel) in either and params["feature_group_count"] == 1:
        return Decision(summed, [PARTIAL])
    return None


def _remaining_axis(axis: int, axes: Sequence[int]) -> Layout:
    return sharded(axis - sum(a < axis for a in axes))


@rule("reduce_sum")
def reduce_sum(call: Call) -> Decision | None:
    """Makes a summand on each replica, over the sharded axis."""
    axis, axes = call.layouts[0].axis, call.params["axes"]
    return Decision(call.layouts, [PARTIAL if axis in axes else _remaining_axis(axis, axes)])


@linear("reduce_sum")
def sum_of_sum(call: Call) -> Decision | None:
    """Sums summands: the order of sums does not matter."""
    return passes_sums(call) if does_not_grow(call, [0]) else None


@rule("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def reduce_other(call: Call) -> Decision | None:
    """Gathers what each replica has, over the sharded axis, and reduces once more."""
    axis, axes = call.layouts[0].axis, call.params["axes"]
    if axis not in axes:
        return Decision(call.layouts, [_remaining_axis(axis, axes)])
    equation = call.equation

    def run(values: Sequence[Any]) -> Sequence[Any]:
        (mine,) = bind(equation.primitive, values, equation.params)
        return bind(equation.primitive, [gather_replicas(mine)], {**equation.params, "axes": (0,)})

    return Decision(call.layouts, [REPLICATED], run=run, gathered=call.count * size_of(equation.outputs[0].aval))


@rule("argmax", "argmin")
def argument(call: Call) -> Decision | None:
    """Takes the best of the replicas' best ones, over the sharded axis; the first of equals."""
    axis, axes = call.layouts[0].axis, tuple(call.params["axes"])
    if axis not in axes:
        return Decision(call.layouts, [_remaining_axis(axis, axes)])
    equation = call.equation
    if len(axes) != 1:
        return None

    # Replicas are in the order of their blocks, so the first of equals is that of the whole array.
    def run(values: Sequence[Any]) -> Sequence[Any]:
        (place,) = bind(equation.primitive, values, equation.params)
        best = jnp.take_along_axis(values[0], jnp.expand_dims(place, axis), axis).squeeze(axis)
        start = lax.convert_element_type(replica_number() * values[0].shape[axis], place.dtype)
        (winner,) = bind(equation.primitive, [gather_replicas(best)], {**equation.params, "axes": (0,)})
        return [jnp.take_along_axis(gather_replicas(place + start), winner[None], 0)[0]]

    # Of each replica the best value, and its place of 4 bytes.
    each = math.prod(call.out_shape()) * (equation.inputs[0].aval.dtype.itemsize + 4)
    return Decision(call.layouts, [REPLICATED], run=run, gathered=call.count * each)


@rule("reduce")
def reduce(call: Call) -> Decision | None:
    """Reduces with a function of the user's, over other axes."""
    axes, arrays = call.params["dimensions"], len(call.layouts) // 2
    divided = [layout for layout in call.layouts[:arrays] if layout.is_sharded]
    if not divided or any(layout.is_sharded for layout in call.layouts[arrays:]) or divided[0].axis in axes:
        return None
    needs = [divided[0]] * arrays + [REPLICATED] * arrays
    return Decision(needs, [_remaining_axis(divided[0].axis, axes)] * arrays)


def _is_alone(params: dict[str, Any], axis: int) -> bool:
    """Returns whether each index along `axis` is a window of its own."""
    # Windows that reach over the end of a block would need the neighbour's edge.
    return (
        params["window_dimensions"][axis] == 1
        and params["window_strides"][axis] == 1
        and tuple(params["padding"][axis]) == (0, 0)
        and all(params.get(key) is None or params[key][axis] == 1 for key in ("base_dilation", "window_dilation"))
    )


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min", "reduce_window")
@rule("select_and_scatter_add", "select_and_gather_add", "select_and_scatter")
def window(call: Call) -> Decision | None:
    """Shards arrays of the same axes; those without axes are values that reductions start from."""
    first = call.sharded_input()
    if first is None or not _is_alone(call.params, call.layouts[first].axis):
        return None
    layout = call.layouts[first]
    needs = [layout if call.shape(i) else REPLICATED for i in range(len(call.layouts))]
    return Decision(needs, [layout] * len(call.equation.outputs))


@linear("reduce_window_sum")
def window_of_sums(call: Call) -> Decision | None:
    """Sums summands: the order of sums does not matter."""
    return passes_sums(call) if does_not_grow(call, [0]) else None
