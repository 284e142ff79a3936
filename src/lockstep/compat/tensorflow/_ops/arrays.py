"""Functions that change the arrangement of elements: shapes, axes, joining and splitting."""

# ruff: noqa: D417

from __future__ import annotations

import builtins  # `slice` is TensorFlow's function in this module.
from typing import Any

import keras
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, int32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._tensor import check_shape as _check_shape
from lockstep.compat.tensorflow._types import Argument, AxisLike, DTypeLike, ShapeLike, SizeLike, WindowLike
from lockstep.errors import ArgumentError

__all__ = ["broadcast_dynamic_shape", "broadcast_static_shape", "broadcast_to", "concat", "ensure_shape", "expand_dims"]
__all__ += ["meshgrid", "pad", "rank", "repeat", "reshape", "reverse", "roll", "shape", "shape_n", "size", "slice"]
__all__ += ["split", "squeeze", "stack", "strided_slice", "tile", "transpose", "unstack"]


def shape(input: Tensor, out_type: DTypeLike = int32, name: str | None = None) -> Tensor:
    """Returns the shape as a tensor of integers; sizes that a symbolic tensor does not know are -1.

    Source: tf.shape.
    """
    xp, x = dispatch.pick(input)
    if xp is dispatch.SYMBOLIC:
        # Keras has no tensor for a size it does not know. -1 is what reshape takes in its place.
        return as_host(np.array([-1 if s is None else s for s in x.shape], as_dtype(out_type).dtype))
    return as_host(np.array(tuple(x.shape), as_dtype(out_type).dtype))


def shape_n(input: Tensor, out_type: DTypeLike = int32, name: str | None = None) -> list[Tensor]:
    """Returns the shapes of a list of tensors. Source: tf.shape_n."""
    return [shape(i, out_type) for i in input]


def size(input: Tensor, out_type: DTypeLike = int32, name: str | None = None) -> Tensor:
    """Returns the number of elements. Source: tf.size."""
    _, x = dispatch.pick(input)
    return as_host(np.array(TensorShape(x.shape).num_elements(), as_dtype(out_type).dtype))


def rank(input: Tensor, name: str | None = None) -> Tensor:
    """Returns the number of dimensions. Source: tf.rank."""
    _, x = dispatch.pick(input)
    return as_host(np.array(len(x.shape), np.int32))


def reshape(tensor: Tensor, shape: ShapeLike, name: str | None = None) -> Tensor:
    """Arranges the elements in another shape, of which one size may be -1. Source: tf.reshape."""
    xp, x = dispatch.pick(tensor)
    sizes = dispatch.to_static(shape)
    try:
        return dispatch.give_exact(xp, xp.reshape(x, sizes))
    # numpy and JAX raise different classes for the same mistake.
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"A tensor is reshaped to as many elements as it has. Received shape {TensorShape(x.shape)} and {sizes}."
        ) from error


def expand_dims(input: Tensor, axis: AxisLike, name: str | None = None) -> Tensor:
    """Inserts a dimension of one element at `axis`. Source: tf.expand_dims."""
    xp, x = dispatch.pick(input)
    return dispatch.give_exact(xp, xp.expand_dims(x, dispatch.to_static(axis)))


def squeeze(input: Tensor, axis: AxisLike = None, name: str | None = None) -> Tensor:
    """Removes dimensions of one element: all, or those of `axis`. Source: tf.squeeze."""
    xp, x = dispatch.pick(input)
    axis = dispatch.to_static(axis)
    # An empty list of axes means all, as None does.
    return dispatch.give_exact(xp, xp.squeeze(x, axis if axis != () else None))


def transpose(a: Tensor, perm: ShapeLike = None, conjugate: bool = False, name: str | None = None) -> Tensor:
    """Reorders dimensions: dimension i of the result is `perm[i]`; by default in reverse. Source: tf.transpose."""
    xp, x = dispatch.pick(a)
    moved = xp.transpose(x, dispatch.to_static(perm))
    return dispatch.give_exact(xp, xp.conj(moved) if conjugate else moved)


def concat(values: Tensor, axis: AxisLike, name: str | None = None) -> Tensor:
    """Joins tensors along an axis that they have. Source: tf.concat."""
    # An array counts as the list of its slices, as where TensorFlow packs its inputs.
    if not isinstance(values, (list, tuple)):
        values = [values] if np.ndim(values) < 2 else list(values)
    xp, tensors = dispatch.pick_list(values)
    return dispatch.give_exact(xp, xp.concatenate(tensors, axis=dispatch.to_static(axis)))


def stack(values: Tensor, axis: int = 0, name: str | None = None) -> Tensor:
    """Joins tensors along a new axis. Source: tf.stack."""
    xp, tensors = dispatch.pick_list(values)
    return dispatch.give_exact(xp, xp.stack(tensors, axis=axis))


def unstack(value: Tensor, num: int | None = None, axis: int = 0, name: str | None = None) -> list[Tensor]:
    """Takes a tensor apart along `axis`, which then is no more. Source: tf.unstack."""
    xp, x = dispatch.pick(value)
    # A symbolic tensor may not know the size; then num says it.
    count = x.shape[axis]
    if num is not None and count is not None and num != count:
        raise ArgumentError(f"num must be the size of axis {axis}, {count}. Received: {num}.")
    if xp is dispatch.SYMBOLIC:
        return list(dispatch.SYMBOLIC.unstack(x, num, axis))
    return [dispatch.give_exact(xp, e) for e in xp.moveaxis(x, axis, 0)]


def split(
    value: Tensor, num_or_size_splits: SizeLike, axis: AxisLike = 0, num: SizeLike = None, name: str | None = None
) -> list[Tensor]:
    """Splits a tensor along an axis.

    Args:
        num_or_size_splits: The number of equal parts, or the size of each part, of which one may be -1: the rest.

    Source: tf.split.
    """
    xp, x = dispatch.pick(value)
    parts, axis = dispatch.to_static(num_or_size_splits), dispatch.to_static(axis)
    total = x.shape[axis]
    if isinstance(parts, int):
        if total is not None and total % parts:
            raise ArgumentError(f"Axis {axis} has {total} elements, which {parts} equal parts cannot share.")
        return [dispatch.give_exact(xp, p) for p in xp.split(x, parts, axis=axis)]
    # One size may be -1 in TensorFlow, which numpy's split points cannot say.
    rest = None if total is None else total - sum(p for p in parts if p >= 0)
    sizes: list[Any] = [rest if p < 0 else p for p in parts]
    if total is not None and (sum(sizes) != total or parts.count(-1) > 1):
        raise ArgumentError(f"The sizes of the parts must add up to {total}. Received: {list(parts)}.")
    return [dispatch.give_exact(xp, p) for p in xp.split(x, [int(i) for i in np.cumsum(sizes[:-1])], axis=axis)]


def tile(input: Tensor, multiples: ShapeLike, name: str | None = None) -> Tensor:
    """Repeats the whole tensor along each dimension, `multiples` times. Source: tf.tile."""
    xp, x = dispatch.pick(input)
    return dispatch.give_exact(xp, xp.tile(x, dispatch.to_static(multiples)))


def repeat(input: Tensor, repeats: Tensor, axis: AxisLike = None, name: str | None = None) -> Tensor:
    """Repeats each element, along `axis` or flat. Source: tf.repeat."""
    xp, x = dispatch.pick(input)
    counts = dispatch.to_static(repeats)
    return dispatch.give_exact(
        xp, xp.repeat(x, counts if isinstance(counts, int) else np.array(counts), axis=dispatch.to_static(axis))
    )


def roll(input: Tensor, shift: SizeLike, axis: AxisLike, name: str | None = None) -> Tensor:
    """Moves elements along an axis; those that leave at the end come back at the start. Source: tf.roll."""
    xp, x = dispatch.pick(input)
    return dispatch.give_exact(xp, xp.roll(x, dispatch.to_static(shift), dispatch.to_static(axis)))


def reverse(tensor: Tensor, axis: AxisLike, name: str | None = None) -> Tensor:
    """Reverses the order along the axes. Source: tf.reverse."""
    xp, x = dispatch.pick(tensor)
    return dispatch.give_exact(xp, xp.flip(x, dispatch.to_static(axis)))


def broadcast_to(input: Tensor, shape: ShapeLike, name: str | None = None) -> Tensor:
    """Repeats a tensor to fill a shape, as operators do. Source: tf.broadcast_to."""
    xp, x = dispatch.pick(input)
    return dispatch.give_exact(xp, xp.broadcast_to(x, dispatch.to_static(shape)))


def broadcast_static_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> TensorShape:
    """Returns the shape that operators give for two shapes. Source: tf.broadcast_static_shape."""
    return TensorShape(np.broadcast_shapes(tuple(shape_x), tuple(shape_y)))


def broadcast_dynamic_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> Tensor:
    """Returns the shape that operators give for two shapes, as a tensor. Source: tf.broadcast_dynamic_shape."""
    sizes = np.broadcast_shapes(dispatch.to_static(shape_x), dispatch.to_static(shape_y))
    return as_host(np.array(sizes, np.int32))


def ensure_shape(x: Tensor, shape: ShapeLike, name: str | None = None) -> Tensor:
    """Returns the tensor; raises `ArgumentError` if it does not have the shape. Source: tf.ensure_shape."""
    xp, tensor = dispatch.pick(x)
    _check_shape(tensor, shape)
    return dispatch.give_exact(xp, tensor)


def meshgrid(*args: Argument, indexing: str = "xy", name: str | None = None) -> list[Tensor]:
    """Makes coordinate grids of vectors. Source: tf.meshgrid."""
    xp, *vectors = dispatch.pick(*args)
    return [dispatch.give_exact(xp, g) for g in xp.meshgrid(*vectors, indexing=indexing)]


def pad(
    tensor: Tensor, paddings: ShapeLike, mode: str = "CONSTANT", constant_values: Tensor = 0, name: str | None = None
) -> Tensor:
    """Adds elements before and after each dimension.

    Args:
        paddings: Integers of shape `[rank, 2]`: how many before, how many after.
        mode: "CONSTANT", "REFLECT" or "SYMMETRIC".

    Source: tf.pad.
    """
    xp, x = dispatch.pick(tensor)
    kind = mode.lower()
    if kind not in ("constant", "reflect", "symmetric"):
        raise ArgumentError(f'mode must be "CONSTANT", "REFLECT" or "SYMMETRIC". Received: {mode!r}.')
    widths = dispatch.to_static(paddings)
    # numpy refuses the argument in the other modes.
    extra = {"constant_values": constant_values} if kind == "constant" else {}
    return dispatch.give_exact(xp, xp.pad(x, widths, mode=kind, **extra))


def slice(input_: Tensor, begin: Tensor, size: ShapeLike, name: str | None = None) -> Tensor:
    """Cuts a block of `size` elements per dimension (-1: all that follow) out, from `begin` on.

    `begin` may be computed by JAX; then the sizes must be given.

    Source: tf.slice.
    """
    xp, x = dispatch.pick(input_)
    sizes = dispatch.to_static(size)
    # A start that JAX computes needs dynamic_slice, whose sizes are static.
    if dispatch.library_of(begin) is dispatch.DEVICE:
        return keras.ops.slice(x, begin, sizes)
    start = dispatch.to_static(begin)
    for number, (b, s, total) in enumerate(zip(start, sizes, x.shape, strict=True)):
        # Python's slices would cut silently at the end of the tensor; TensorFlow raises.
        if total is not None and not 0 <= b <= b + max(s, 0) <= total:
            raise ArgumentError(
                f"A slice must lie in the tensor. Dimension {number} has {total} elements; received "
                f"begin {b}, size {s}."
            )
    stops = [None if s < 0 else b + s for b, s in zip(start, sizes, strict=True)]
    return dispatch.give_exact(xp, x[tuple(map(builtins.slice, start, stops))])


def strided_slice(
    input_: Tensor, begin: Tensor, end: Tensor, strides: WindowLike = None, name: str | None = None
) -> Tensor:
    """Cuts out `begin:end:stride` of each dimension; its masks are Python's slices: use those.

    Source: tf.strided_slice.
    """
    xp, x = dispatch.pick(input_)
    # TensorFlow's default is 1 for each dimension.
    steps = dispatch.to_static(strides) if strides is not None else (1,) * len(dispatch.to_static(begin))
    return dispatch.give_exact(
        xp, x[tuple(map(builtins.slice, dispatch.to_static(begin), dispatch.to_static(end), steps))]
    )


named.record_names(globals())
