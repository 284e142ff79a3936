"""Rules for looking up and writing at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, sharded
from lockstep._cpu.partitioner.rules.base import Call, Decision, is_summand, linear, rule


@rule("gather")
def gather(call: Call) -> Decision | None:
    """Shards lookups where their indices are sharded, or the array that is looked up along an axis taken in full."""
    operand, indices = call.layouts
    if operand.is_sharded and operand.axis in call.params["dimension_numbers"].operand_batching_dims:
        return _look_up(call, _index_axis(call, operand.axis))
    if operand.is_sharded:
        return None if indices.is_sharded else _from_slices(call)
    return _look_up(call, indices.axis)


def _index_axis(call: Call, operand_axis: int) -> int:
    numbers = call.params["dimension_numbers"]
    return _indices_batching(numbers)[tuple(numbers.operand_batching_dims).index(operand_axis)]


def _indices_batching(numbers: Any) -> tuple[int, ...]:
    # Gather and scatter have different names for it.
    found = getattr(numbers, "start_indices_batching_dims", None)
    return tuple(numbers.scatter_indices_batching_dims if found is None else found)


def _operand_need(call: Call, index_axis: int) -> Any:
    """Returns the operand's layout where the indices are sharded along `index_axis`."""
    numbers = call.params["dimension_numbers"]
    batching = _indices_batching(numbers)
    if index_axis not in batching:
        return REPLICATED
    return sharded(tuple(numbers.operand_batching_dims)[batching.index(index_axis)])


def _look_up(call: Call, index_axis: int) -> Decision | None:
    numbers = call.params["dimension_numbers"]
    # The last axis of indices holds the coordinates of one lookup.
    if index_axis >= len(call.shape(1)) - 1:
        return None
    lookups = [a for a in range(len(call.out_shape())) if a not in numbers.offset_dims]
    return Decision([_operand_need(call, index_axis), sharded(index_axis)], [sharded(lookups[index_axis])])


def _from_slices(call: Call) -> Decision | None:
    """Decides where the sharded axis is no index and comes out whole."""
    axis, params = call.layouts[0].axis, call.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    # Along an axis that is looked up, the rows that a replica asks for may be another's.
    if axis in numbers.start_index_map or axis in numbers.collapsed_slice_dims or sizes[axis] != call.shape(0)[axis]:
        return None
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    place = numbers.offset_dims[axis - sum(a < axis for a in gone)]
    changed = {**params, "slice_sizes": call.local(sizes, axis)}
    return Decision([call.layouts[0], REPLICATED], [sharded(place)], changed)


@rule("scatter-add", "scatter-sub")
def scatter_add(call: Call) -> Decision | None:
    """Adds each replica's updates to its block of the array, or to its summand of it (the gradient of a lookup)."""
    found = scatter(call)
    if found is not None or call.layouts[0].is_sharded:
        return found
    index_axis = _index_axis_of_updates(call)
    if index_axis is None:
        return None
    # The array itself counts once: as a summand it is the first replica's, and zeros on the others.
    update = sharded(scatter_axes(call)[index_axis])
    return Decision([PARTIAL, sharded(index_axis), update], [PARTIAL])


@rule("scatter", "scatter-mul", "scatter-min", "scatter-max")
def scatter(call: Call) -> Decision | None:
    """Writes to each replica's own block only."""
    if len(call.layouts) != 3:
        return None
    numbers = call.params["dimension_numbers"]
    operand, indices, updates = call.layouts
    if operand.is_sharded and operand.axis not in numbers.operand_batching_dims:
        return _to_slices(call, operand.axis) if not indices.is_sharded else None
    index_axis = _index_axis(call, operand.axis) if operand.is_sharded else _index_axis_of_updates(call)
    if index_axis in _indices_batching(numbers):
        block = _operand_need(call, index_axis)
        return Decision([block, sharded(index_axis), sharded(scatter_axes(call)[index_axis])], [block])
    if operand == REPLICATED and updates.is_sharded and updates.axis in numbers.update_window_dims:
        return None if indices.is_sharded else _to_slices(call, _window_axis(call, updates.axis))
    # Indices of different replicas may be the same place. Sums of such updates have a rule, in `scatter_add`; for
    # others the order would count.
    return None


def _window_axes(call: Call) -> list[int]:
    """Returns the axes of the operand that windows of the updates cover, in their order."""
    numbers = call.params["dimension_numbers"]
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    return [a for a in range(len(call.shape(0))) if a not in gone]


def _window_axis(call: Call, update_axis: int) -> int:
    return _window_axes(call)[tuple(call.params["dimension_numbers"].update_window_dims).index(update_axis)]


def _to_slices(call: Call, axis: int) -> Decision | None:
    """Decides where the sharded axis is no index and is written in full."""
    numbers = call.params["dimension_numbers"]
    if axis not in _window_axes(call) or axis in numbers.scatter_dims_to_operand_dims:
        return None
    update = numbers.update_window_dims[_window_axes(call).index(axis)]
    if call.shape(2)[update] != call.shape(0)[axis]:
        return None
    return Decision([sharded(axis), REPLICATED, sharded(update)], [sharded(axis)])


def scatter_axes(call: Call, updates: int = 2) -> Sequence[int]:
    """Returns the axes of the updates, by the number of that input, that go with those of the indices."""
    window = call.params["dimension_numbers"].update_window_dims
    return [axis for axis in range(len(call.shape(updates))) if axis not in window]


def _index_axis_of_updates(call: Call) -> int | None:
    """Returns the axis of the indices along which a scatter is sharded, by its indices or else by its updates."""
    _, indices, updates = call.layouts
    if indices.is_sharded:
        return indices.axis if indices.axis < len(call.shape(1)) - 1 else None
    if updates.is_sharded and updates.axis in scatter_axes(call):
        return list(scatter_axes(call)).index(updates.axis)
    return None


@linear("scatter-add", "scatter-sub")
def scattered_sum(call: Call) -> Decision | None:
    """Adds updates that are summands to an array that is one, or zero."""
    if not is_summand(call, 0) or not is_summand(call, 2) or call.layouts[1] != REPLICATED:
        return None
    return Decision([PARTIAL, REPLICATED, PARTIAL], [PARTIAL])
