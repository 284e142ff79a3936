"""Functions that change the arrangement of elements: shapes, axes, joining and splitting."""

# ruff: noqa: D417

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from lockstep.compat.tensorflow._dtypes import as_dtype, int32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._tensor import check_shape as _check_shape
from lockstep.errors import ArgumentError

__all__ = [
    "broadcast_dynamic_shape",
    "broadcast_static_shape",
    "broadcast_to",
    "concat",
    "ensure_shape",
    "expand_dims",
    "meshgrid",
    "pad",
    "rank",
    "repeat",
    "reshape",
    "reverse",
    "roll",
    "shape",
    "shape_n",
    "size",
    "slice",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "tile",
    "transpose",
    "unstack",
]


def _same(xp: Any, value: Any) -> Any:
    """A result whose elements were moved, not computed with: they keep their 64 bits."""
    return as_host(value) if xp is dispatch.HOST else value


def shape(input: Any, out_type: Any = int32, name: str | None = None) -> Any:
    """Returns the shape as a tensor of integers; sizes that a symbolic tensor does not know are -1.

    Source: tf.shape.
    """
    xp, x = dispatch.pick(input)
    if xp is dispatch.SYMBOLIC:
        return as_host(np.array([-1 if s is None else s for s in x.shape], as_dtype(out_type).dtype))
    return as_host(np.array(tuple(x.shape), as_dtype(out_type).dtype))


def shape_n(input: Any, out_type: Any = int32, name: str | None = None) -> list[Any]:
    """Returns the shapes of a list of tensors. Source: tf.shape_n."""
    return [shape(i, out_type) for i in input]


def size(input: Any, out_type: Any = int32, name: str | None = None) -> Any:
    """Returns the number of elements. Source: tf.size."""
    _, x = dispatch.pick(input)
    return as_host(np.array(TensorShape(x.shape).num_elements(), as_dtype(out_type).dtype))


def rank(input: Any, name: str | None = None) -> Any:
    """Returns the number of dimensions. Source: tf.rank."""
    _, x = dispatch.pick(input)
    return as_host(np.array(len(x.shape), np.int32))


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """Arranges the elements in another shape, of which one size may be -1. Source: tf.reshape."""
    xp, x = dispatch.pick(tensor)
    sizes = dispatch.static(shape)
    try:
        return _same(xp, xp.reshape(x, sizes))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"A tensor is reshaped to as many elements as it has. Received shape {TensorShape(x.shape)} and {sizes}."
        ) from error


def expand_dims(input: Any, axis: Any, name: str | None = None) -> Any:
    """Inserts a dimension of one element at `axis`. Source: tf.expand_dims."""
    xp, x = dispatch.pick(input)
    return _same(xp, xp.expand_dims(x, dispatch.static(axis)))


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    """Removes dimensions of one element: all, or those of `axis`. Source: tf.squeeze."""
    xp, x = dispatch.pick(input)
    axis = dispatch.static(axis)
    return _same(xp, xp.squeeze(x, axis if axis != () else None))


def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str | None = None) -> Any:
    """Reorders dimensions: dimension i of the result is `perm[i]`; by default in reverse. Source: tf.transpose."""
    xp, x = dispatch.pick(a)
    moved = xp.transpose(x, dispatch.static(perm))
    return _same(xp, xp.conj(moved) if conjugate else moved)


def concat(values: Any, axis: Any, name: str | None = None) -> Any:
    """Joins tensors along an axis that they have. Source: tf.concat."""
    if not isinstance(values, (list, tuple)):
        values = [values] if np.ndim(values) < 2 else list(values)
    xp, tensors = dispatch.pick_list(values)
    return _same(xp, xp.concatenate(tensors, axis=dispatch.static(axis)))


def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Joins tensors along a new axis. Source: tf.stack."""
    xp, tensors = dispatch.pick_list(values)
    return _same(xp, xp.stack(tensors, axis=axis))


def unstack(value: Any, num: int | None = None, axis: int = 0, name: str | None = None) -> list[Any]:
    """Takes a tensor apart along `axis`, which then is no more. Source: tf.unstack."""
    xp, x = dispatch.pick(value)
    count = x.shape[axis]
    if num is not None and count is not None and num != count:
        raise ArgumentError(f"num must be the size of axis {axis}, {count}. Received: {num}.")
    if xp is dispatch.SYMBOLIC:
        return list(dispatch.SYMBOLIC.unstack(x, num, axis))
    return [_same(xp, e) for e in xp.moveaxis(x, axis, 0)]


def split(value: Any, num_or_size_splits: Any, axis: Any = 0, num: Any = None, name: str | None = None) -> list[Any]:
    """Splits a tensor along an axis.

    Args:
        num_or_size_splits: The number of equal parts, or the size of each part, of which one may be -1: the rest.

    Source: tf.split.
    """
    xp, x = dispatch.pick(value)
    parts, axis = dispatch.static(num_or_size_splits), dispatch.static(axis)
    total = x.shape[axis]
    if isinstance(parts, int):
        if total is not None and total % parts:
            raise ArgumentError(f"Axis {axis} has {total} elements, which {parts} equal parts cannot share.")
        return [_same(xp, p) for p in xp.split(x, parts, axis=axis)]
    rest = None if total is None else total - sum(p for p in parts if p >= 0)
    sizes: list[Any] = [rest if p < 0 else p for p in parts]
    if total is not None and (sum(sizes) != total or parts.count(-1) > 1):
        raise ArgumentError(f"The sizes of the parts must add up to {total}. Received: {list(parts)}.")
    return [_same(xp, p) for p in xp.split(x, [int(i) for i in np.cumsum(sizes[:-1])], axis=axis)]


def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """Repeats the whole tensor along each dimension, `multiples` times. Source: tf.tile."""
    xp, x = dispatch.pick(input)
    return _same(xp, xp.tile(x, dispatch.static(multiples)))


def repeat(input: Any, repeats: Any, axis: Any = None, name: str | None = None) -> Any:
    """Repeats each element, along `axis` or flat. Source: tf.repeat."""
    xp, x = dispatch.pick(input)
    counts = dispatch.static(repeats)
    return _same(xp, xp.repeat(x, counts if isinstance(counts, int) else np.array(counts), axis=dispatch.static(axis)))


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Any:
    """Moves elements along an axis; those that leave at the end come back at the start. Source: tf.roll."""
    xp, x = dispatch.pick(input)
    return _same(xp, xp.roll(x, dispatch.static(shift), dispatch.static(axis)))


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    """Reverses the order along the axes. Source: tf.reverse."""
    xp, x = dispatch.pick(tensor)
    return _same(xp, xp.flip(x, dispatch.static(axis)))


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """Repeats a tensor to fill a shape, as operators do. Source: tf.broadcast_to."""
    xp, x = dispatch.pick(input)
    return _same(xp, xp.broadcast_to(x, dispatch.static(shape)))


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """Returns the shape that operators give for two shapes. Source: tf.broadcast_static_shape."""
    return TensorShape(np.broadcast_shapes(tuple(shape_x), tuple(shape_y)))


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Any:
    """Returns the shape that operators give for two shapes, as a tensor. Source: tf.broadcast_dynamic_shape."""
    sizes = np.broadcast_shapes(dispatch.static(shape_x), dispatch.static(shape_y))
    return as_host(np.array(sizes, np.int32))


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Any:
    """Returns the tensor; raises `ArgumentError` if it does not have the shape. Source: tf.ensure_shape."""
    xp, tensor = dispatch.pick(x)
    _check_shape(tensor, shape)
    return _same(xp, tensor)


def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list[Any]:
    """Makes coordinate grids of vectors. Source: tf.meshgrid."""
    xp, *vectors = dispatch.pick(*args)
    return [_same(xp, g) for g in xp.meshgrid(*vectors, indexing=indexing)]


def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Any:
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
    widths = dispatch.static(paddings)
    extra = {"constant_values": constant_values} if kind == "constant" else {}
    return _same(xp, xp.pad(x, widths, mode=kind, **extra))


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    """Cuts a block of `size` elements per dimension (-1: all that follow) out, from `begin` on.

    `begin` may be computed by JAX; then the sizes must be given.

    Source: tf.slice.
    """
    xp, x = dispatch.pick(input_)
    sizes = dispatch.static(size)
    if dispatch.library(begin) is dispatch.DEVICE:
        return keras.ops.slice(x, begin, sizes)
    start = dispatch.static(begin)
    stops = [None if s < 0 else b + s for b, s in zip(start, sizes, strict=True)]
    _check_block(x, start, sizes)
    return _same(xp, x[tuple(map(_slice, start, stops))])


def _check_block(x: Any, begin: Any, sizes: Any) -> None:
    for number, (b, s, total) in enumerate(zip(begin, sizes, x.shape, strict=True)):
        if total is not None and not 0 <= b <= b + max(s, 0) <= total:
            raise ArgumentError(
                f"A slice must lie in the tensor. Dimension {number} has {total} elements; received "
                f"begin {b}, size {s}."
            )


def strided_slice(input_: Any, begin: Any, end: Any, strides: Any = None, name: str | None = None) -> Any:
    """Cuts out `begin:end:stride` of each dimension; its masks are Python's slices: use those.

    Source: tf.strided_slice.
    """
    xp, x = dispatch.pick(input_)
    steps = dispatch.static(strides) if strides is not None else (1,) * len(dispatch.static(begin))
    return _same(xp, x[tuple(map(_slice, dispatch.static(begin), dispatch.static(end), steps))])


def _slice(*bounds: Any) -> Any:
    import builtins

    return builtins.slice(*bounds)


named.all_of(globals())
