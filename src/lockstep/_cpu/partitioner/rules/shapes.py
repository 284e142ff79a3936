"""Rules for what moves elements without computing: the divided axis must stay whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax import lax

from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, replica_number, sharded
from lockstep._cpu.partitioner.rules.base import Call, Decision, does_not_grow, linear, passes_sums, rule
from lockstep._types import DType


def _axis(call: Call) -> int:
    """Returns the axis along which the first input is sharded; rules for one input are only asked if it is."""
    return call.layouts[0].axis


@rule("broadcast_in_dim", sliceable=True)
def broadcast_in_dim(call: Call) -> Decision | None:
    """Moves the sharded axis; an axis that is new is made for each replica's block alone."""
    shape, dims = call.params["shape"], tuple(call.params["broadcast_dimensions"])
    # More operands are sizes known at run time only, of which no block can be made beforehand.
    if len(call.layouts) != 1:
        return None
    axis = dims[_axis(call)] if call.wanted_axis is None else call.wanted_axis
    comes_from = dims.index(axis) if axis in dims else None
    # An axis of one element is repeated: each replica makes its block of the whole.
    if comes_from is not None and call.shape(0)[comes_from] == 1 != shape[axis]:
        comes_from = None
    need = REPLICATED if comes_from is None else sharded(comes_from)
    return Decision([need], [sharded(axis)], {**call.params, "shape": call.local(shape, axis)})


def matching_axis(before: Sequence[int], after: Sequence[int], axis: int, count: int) -> int | None:
    """Returns the axis of a reshape's result to which one of `count` blocks goes, if the blocks stay blocks of an axis.

    Elements are numbered in row-major order. Blocks of `axis` are equal runs within each index of the axes in front; so
    they are blocks of an axis of the new shape that has as many indices in front, and divides as well.
    """
    in_front = math.prod(before[:axis])
    for number, size in enumerate(after):
        if math.prod(after[:number]) == in_front and size % count == 0 and size:
            return number
    return None


@rule("reshape", sliceable=True)
def reshape(call: Call) -> Decision | None:
    """Splits or joins the divided axis, as long as it is the first of those that are joined."""
    before, after = call.shape(0), call.params["new_sizes"]
    if call.params.get("dimensions") is not None or len(call.layouts) != 1:
        return None
    if call.wanted_axis is None:
        source, target = _axis(call), matching_axis(before, after, _axis(call), call.count)
    else:
        source, target = matching_axis(after, before, call.wanted_axis, call.count), call.wanted_axis
    if source is None or target is None:
        return None
    return Decision([sharded(source)], [sharded(target)], {**call.params, "new_sizes": call.local(after, target)})


@rule("transpose", sliceable=True)
def transpose(call: Call) -> Decision | None:
    """Moves the sharded axis."""
    order = tuple(call.params["permutation"])
    axis = order.index(_axis(call)) if call.wanted_axis is None else call.wanted_axis
    return Decision([sharded(order[axis])], [sharded(axis)])


@rule("squeeze")
def squeeze(call: Call) -> Decision | None:
    """Drops axes of one element."""
    gone = call.params["dimensions"]
    if _axis(call) in gone:
        return None
    return Decision(call.layouts, [sharded(_axis(call) - sum(d < _axis(call) for d in gone))])


def _same_axis(call: Call, *axes: int) -> Decision | None:
    """Decides for inputs and outputs that are all sharded along one axis, which is none of `axes`."""
    first = call.sharded_input()
    if first is None or call.layouts[first].axis in axes:
        return None
    layout = call.layouts[first]
    return Decision([layout] * len(call.layouts), [layout] * len(call.equation.outputs))


@rule("concatenate", "sort")
def along_dimension(call: Call) -> Decision | None:
    """Shards other axes."""
    return _same_axis(call, call.params["dimension"])


@rule("split", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def along_axis(call: Call) -> Decision | None:
    """Shards other axes."""
    return _same_axis(call, call.params["axis"])


@rule("rev")
def rev(call: Call) -> Decision | None:
    """Shards other axes."""
    return _same_axis(call, *call.params["dimensions"])


@rule("stack")
def stack(call: Call) -> Decision | None:
    """Inserts an axis before the sharded one, or after it."""
    first = call.sharded_input()
    if first is None:
        return None
    layout, new = call.layouts[first], call.params["axis"] % len(call.out_shape())
    return Decision([layout] * len(call.layouts), [sharded(layout.axis + (new <= layout.axis))])


@rule("unstack")
def unstack(call: Call) -> Decision | None:
    """Drops another axis."""
    axis, gone = _axis(call), call.params["axis"] % len(call.shape(0))
    if axis == gone:
        return None
    return Decision(call.layouts, [sharded(axis - (gone < axis))] * len(call.equation.outputs))


@rule("top_k")
def top_k(call: Call) -> Decision | None:
    """Shards other axes."""
    return _same_axis(call, call.params.get("axis", len(call.shape(0)) - 1) % len(call.shape(0)))


@rule("tile")
def tile(call: Call) -> Decision | None:
    """Shards other axes."""
    reps = call.params["reps"]
    return _same_axis(call) if len(reps) == len(call.shape(0)) and reps[_axis(call)] == 1 else None


@rule("pad")
def pad(call: Call) -> Decision | None:
    """Shards other axes."""
    axis = _axis(call)
    if axis < 0 or tuple(call.params["padding_config"][axis]) != (0, 0, 0):
        return None
    return Decision([sharded(axis), REPLICATED], [sharded(axis)])


@rule("slice")
def slice_(call: Call) -> Decision | None:
    """Shards other axes."""
    axis, params = _axis(call), call.params
    start, limit, strides = params["start_indices"], params["limit_indices"], params["strides"]
    size = call.shape(0)[axis]
    if start[axis] or limit[axis] != size or (strides is not None and strides[axis] != 1):
        return None
    limits = call.local((*limit[:axis], size, *limit[axis + 1 :]), axis)
    return Decision(call.layouts, call.layouts, {**params, "limit_indices": limits})


@rule("dynamic_slice")
def dynamic_slice(call: Call) -> Decision | None:
    """Shards other axes: a slice of an axis' full length starts at 0, whatever it is told."""
    axis, sizes = _axis(call), call.params["slice_sizes"]
    if axis < 0 or sizes[axis] != call.shape(0)[axis]:
        return None
    needs = [sharded(axis), *[REPLICATED] * (len(call.layouts) - 1)]
    return Decision(needs, [sharded(axis)], {**call.params, "slice_sizes": call.local(sizes, axis)})


@rule("dynamic_update_slice")
def dynamic_update_slice(call: Call) -> Decision | None:
    """Shards other axes."""
    first = call.sharded_input()
    if first is None or first > 1:
        return None
    axis = call.layouts[first].axis
    # Written in full along the axis, an update starts at 0, as XLA clamps it: so no replica writes into another's
    # block.
    if call.shape(0)[axis] != call.shape(1)[axis]:
        return None
    divided = sharded(axis)
    return Decision([divided, divided, *[REPLICATED] * (len(call.layouts) - 2)], [divided])


@rule("iota", sliceable=True)
def iota(call: Call) -> Decision | None:
    """Numbers each replica's own block."""
    axis, params = call.wanted_axis, call.params
    if axis is None or call.layouts:
        return None
    shape, dimension, dtype = call.local(params["shape"], axis), params["dimension"], params["dtype"]

    def run(_: Sequence[Any]) -> Sequence[Any]:
        numbers = lax.broadcasted_iota(dtype, shape, dimension)
        return [numbers + block_start(shape[axis], dtype) if dimension == axis else numbers]

    return Decision([], [sharded(axis)], run=run)


def block_start(length: int, dtype: DType) -> Any:
    """Returns the number of the first index of this replica's block, of `length` indices."""
    return lax.convert_element_type(replica_number() * length, dtype)


@linear(
    "broadcast_in_dim", "reshape", "transpose", "squeeze", "rev", "slice", "split", "unstack", "cumsum", "dynamic_slice"
)
def moved_sum(call: Call) -> Decision | None:
    """Moves the summands alike, unless that makes them larger."""
    return passes_sums(call, 1) if does_not_grow(call, [0]) else None


@linear("concatenate", "stack")
def joined_sums(call: Call) -> Decision | None:
    """Puts summands after each other alike."""
    # Larger than each input, and not than all together: but for zeros as many bytes are summed, in one value.
    return passes_sums(call)


@linear("pad")
def padded_sum(call: Call) -> Decision | None:
    """Pads a summand with zeros: it grows, but is one of several that are added up, as the gradient of a slice."""
    value = call.equation.inputs[1]
    return Decision([PARTIAL, REPLICATED], [PARTIAL]) if value.is_zero and _axis(call) == PARTIAL.axis else None


@linear("dynamic_update_slice")
def updated_sum(call: Call) -> Decision | None:
    """Updates a summand, or zeros, with a summand."""
    return passes_sums(call, 2)
