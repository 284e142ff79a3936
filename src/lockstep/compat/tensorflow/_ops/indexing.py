"""Functions that pick, place and order elements."""

# ruff: noqa: D417

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, int32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import AxisLike, DTypeLike, ShapeLike, SizeLike
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["argsort", "boolean_mask", "dynamic_partition", "dynamic_stitch", "gather", "gather_nd"]
__all__ += ["histogram_fixed_width", "invert_permutation", "scatter_nd", "searchsorted", "sort"]
__all__ += ["tensor_scatter_nd_add", "tensor_scatter_nd_max", "tensor_scatter_nd_min", "tensor_scatter_nd_sub"]
__all__ += ["tensor_scatter_nd_update", "top_k", "unique", "unique_with_counts", "where"]


class TopK(NamedTuple):
    """The greatest elements, and their indices."""

    values: Any
    indices: Any


class Unique(NamedTuple):
    """Distinct elements in the order of their first occurrence, and for each element the index of its own."""

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """Distinct elements, indices into them, and how often each occurs."""

    y: Any
    idx: Any
    count: Any


def read_values(function: str, x: Tensor) -> np.ndarray[Any, Any]:
    """Returns values on which the shape of a function's result depends."""
    if isinstance(x, (Tracer, keras.KerasTensor)):
        raise UnsupportedError(
            f"The shape of what {function} returns depends on values, which are not known when JAX "
            "compiles. Use tf.where "
            "with three arguments, or multiply by the mask; in a data set, use filter."
        )
    return np.asarray(x)


def gather(
    params: Tensor,
    indices: Tensor,
    validate_indices: object = None,
    axis: AxisLike = None,
    batch_dims: SizeLike = 0,
    name: str | None = None,
) -> Tensor:
    """Takes slices along `axis` by their indices.

    Args:
        params: A tensor.
        indices: Integers of any shape. On the host one out of range raises `ArgumentError`, in JAX it gives NaN or 0.
        validate_indices: No longer used, in TensorFlow either: must be `None`.
        axis: By default `batch_dims`.
        batch_dims: How many first dimensions both have in common.

    Source: tf.gather.
    """
    if validate_indices is not None:
        raise ArgumentError(
            f"validate_indices has no effect in TensorFlow; leave it out. Received: {validate_indices!r}."
        )
    batch, axis = dispatch.to_static(batch_dims), dispatch.to_static(axis)
    axis = batch if axis is None else axis
    scope = named.model_fn_scope()
    if scope is not None and isinstance(params, keras.Variable) and axis == batch == 0:
        ids = jnp.asarray(dispatch.to_array(dispatch.DEVICE, indices))
        # Of a variable that parameter servers hold, a task may have no more than the rows of its batch.
        return scope.lookup(params, ids, _take_rows)
    xp, x, i = dispatch.pick(params, indices)
    axis = axis + len(x.shape) if axis < 0 else axis
    batch = batch + len(i.shape) if batch < 0 else batch
    if xp is dispatch.SYMBOLIC:
        return _symbolic_gather(x, i, axis, batch)
    if xp is dispatch.HOST:
        _check_indices(i, x.shape[axis])

    def take(a: Any, b: Any) -> Any:
        if xp is dispatch.HOST:
            return np.take(a, b, axis=axis - batch)
        return _take_rows(a, b, axis - batch)

    if not batch:
        return dispatch.give_exact(xp, take(x, i))
    # Batch dimensions become one, over which slices are gathered one by one.
    flat_x = x.reshape(-1, *x.shape[batch:])
    flat_i = i.reshape(-1, *i.shape[batch:])
    rows = (
        xp.stack([take(a, b) for a, b in zip(flat_x, flat_i, strict=True)])
        if xp is dispatch.HOST
        else jax.vmap(take)(flat_x, flat_i)
    )
    return dispatch.give_exact(xp, rows.reshape(*x.shape[:batch], *rows.shape[1:]))


def _take_rows(values: Any, ids: Any, axis: int = 0) -> Any:
    # TensorFlow raises on the CPU. Compiled code cannot: it gives NaN, or 0 for integers.
    filling = jnp.nan if jnp.issubdtype(values.dtype, jnp.inexact) else 0
    return jnp.take(values, ids, axis=axis, mode="fill", fill_value=filling)


def _symbolic_gather(x: Tensor, i: Tensor, axis: int, batch: int) -> Any:
    if not batch:
        return keras.ops.take(x, i, axis=axis)
    # keras.ops has no batch_dims; take_along_axis serves one dimension of indices.
    if axis == batch == len(i.shape) - 1:
        steps = len(x.shape) - len(i.shape)
        wide = keras.ops.reshape(i, (-1, *i.shape[1:], *(1,) * steps)) if steps else i
        return keras.ops.take_along_axis(x, wide, axis=axis)
    raise UnsupportedError(
        "tf.gather on symbolic tensors takes batch_dims for one index dimension. Put the gather in "
        "the call method of a "
        "keras.layers.Layer."
    )


def _check_indices(indices: Tensor, size: int) -> None:
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        bad = indices[(indices < 0) | (indices >= size)].ravel()[0]
        raise ArgumentError(f"An index must be in the range [0, {size}). Received: {bad}.")


def gather_nd(params: Tensor, indices: Tensor, batch_dims: SizeLike = 0, name: str | None = None) -> Tensor:
    """Takes elements or slices by index vectors, the last dimension of `indices`. Source: tf.gather_nd."""
    xp, x, i = dispatch.pick(params, indices)
    if dispatch.to_static(batch_dims):
        batch = dispatch.to_static(batch_dims)
        rows = [gather_nd(a, b, batch - 1) for a, b in zip(x, i, strict=True)]
        return dispatch.give_exact(xp, xp.stack([dispatch.to_array(xp, r) for r in rows]))
    if xp is dispatch.SYMBOLIC:
        raise UnsupportedError(
            "tf.gather_nd takes no symbolic tensors. Put it in the call method of a keras.layers.Layer."
        )
    for axis in range(i.shape[-1] if xp is dispatch.HOST else 0):
        _check_indices(i[..., axis], x.shape[axis])
    return dispatch.give_exact(xp, x[tuple(xp.moveaxis(i, -1, 0))])


def where(condition: Tensor, x: Tensor = None, y: Tensor = None, name: str | None = None) -> Tensor:
    """Returns elements of `x` where the condition is true, else of `y`; without them, the indices of what is true.

    Source: tf.where.
    """
    # TensorFlow's rule.
    if (x is None) != (y is None):
        raise ArgumentError("tf.where takes both x and y, or neither.")
    if x is None:
        return as_host(np.argwhere(read_values("tf.where with one argument", dispatch.pick(condition)[1])))
    xp, c, a, b = dispatch.pick_loose(condition, x, y)
    c = xp.asarray(c) if xp is not dispatch.SYMBOLIC else c
    if xp is not dispatch.HOST:
        return xp.where(c, a, b)
    # A plain number takes the other's type; two of them have no array to take the type of.
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        a, b = dispatch.to_array(xp, a), dispatch.to_array(xp, b)
    return as_host(np.where(c, a, b))


def boolean_mask(tensor: Tensor, mask: Tensor, axis: AxisLike = None, name: str = "boolean_mask") -> Tensor:
    """Keeps what `mask` is true for. Source: tf.boolean_mask."""
    xp, x, m = dispatch.pick(tensor, mask)
    keep, axis = read_values("tf.boolean_mask", x if xp is dispatch.SYMBOLIC else m), dispatch.to_static(axis) or 0
    return dispatch.give_exact(xp, x[(*[slice(None)] * axis, keep)])


def dynamic_partition(data: Tensor, partitions: Tensor, num_partitions: int, name: str | None = None) -> list[Tensor]:
    """Sorts slices into `num_partitions` tensors. Source: tf.dynamic_partition."""
    xp, x, p = dispatch.pick(data, partitions)
    known = read_values("tf.dynamic_partition", p)
    return [dispatch.give_exact(xp, x[known == n]) for n in range(num_partitions)]


def dynamic_stitch(indices: Tensor, data: Tensor, name: str | None = None) -> Tensor:
    """Puts slices of several tensors in the order of their indices. Source: tf.dynamic_stitch."""
    xp, parts = dispatch.pick_list(data)
    # The size of the result depends on the indices, so that they are known.
    positions = [np.asarray(i) for i in indices]
    count = max(int(p.max(initial=-1)) for p in positions) + 1
    rest = parts[0].shape[positions[0].ndim :]
    flat = xp.concatenate([p.reshape(-1, *rest) for p in parts])
    order = np.zeros(count, np.int64)
    # Of equal indices the last one wins, as in TensorFlow.
    order[np.concatenate([p.ravel() for p in positions])] = np.arange(flat.shape[0])
    return dispatch.give_exact(xp, flat[order])


def scatter_nd(indices: Tensor, updates: Tensor, shape: ShapeLike, name: str | None = None) -> Tensor:
    """Makes zeros of `shape` and adds `updates` at the index vectors. Source: tf.scatter_nd."""
    xp, i, u = dispatch.pick(indices, updates)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.scatter(i, u, dispatch.to_static(shape))
    return _scatter("add", xp.zeros(dispatch.to_static(shape), u.dtype), i, u)


def tensor_scatter_nd_update(tensor: Tensor, indices: Tensor, updates: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor with `updates` at the index vectors. Source: tf.tensor_scatter_nd_update."""
    return _scatter("set", tensor, indices, updates)


def tensor_scatter_nd_add(tensor: Tensor, indices: Tensor, updates: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor with `updates` added at the index vectors. Source: tf.tensor_scatter_nd_add."""
    return _scatter("add", tensor, indices, updates)


def tensor_scatter_nd_sub(tensor: Tensor, indices: Tensor, updates: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor with `updates` subtracted at the index vectors. Source: tf.tensor_scatter_nd_sub."""
    xp, u = dispatch.pick(updates)
    return _scatter("add", tensor, indices, dispatch.give(xp, -u))


def tensor_scatter_nd_max(tensor: Tensor, indices: Tensor, updates: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor with the greater of its elements and `updates`. Source: tf.tensor_scatter_nd_max."""
    return _scatter("max", tensor, indices, updates)


def tensor_scatter_nd_min(tensor: Tensor, indices: Tensor, updates: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor with the lesser of its elements and `updates`. Source: tf.tensor_scatter_nd_min."""
    return _scatter("min", tensor, indices, updates)


_IN_PLACE: dict[str, Any] = {"add": np.add.at, "max": np.maximum.at, "min": np.minimum.at}


def _scatter(how: str, tensor: Tensor, indices: Tensor, updates: Tensor) -> Any:
    xp, x, i, u = dispatch.pick(tensor, indices, updates)
    if xp is dispatch.SYMBOLIC:
        raise UnsupportedError(
            "Scattering takes no symbolic tensors. Put it in the call method of a keras.layers.Layer."
        )
    # The last dimension of indices holds the coordinates.
    at = tuple(xp.moveaxis(i, -1, 0))
    if xp is dispatch.DEVICE:
        return getattr(x.at[at], how)(u)
    result = np.array(x)
    if how == "set":
        result[at] = u
    else:
        # ufunc.at counts each of equal indices; result[at] += u would count one.
        _IN_PLACE[how](result, at, u)
    return as_host(result)


def _is_descending(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ArgumentError(f'direction must be "ASCENDING" or "DESCENDING". Received: {direction!r}.')
    return direction == "DESCENDING"


def sort(values: Tensor, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """Sorts along an axis, "ASCENDING" or "DESCENDING". Source: tf.sort."""
    xp, x = dispatch.pick(values)
    ordered = xp.sort(x, axis=axis)
    return dispatch.give_exact(xp, xp.flip(ordered, axis) if _is_descending(direction) else ordered)


def argsort(
    values: Tensor, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Tensor:
    """Returns the indices that sort along an axis; equal elements stay in order, `stable` or not.

    Source: tf.argsort.
    """
    xp, x = dispatch.pick(values)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.argsort(-x if _is_descending(direction) else x, axis=axis)
    if not _is_descending(direction):
        return dispatch.give(xp, xp.argsort(x, axis=axis, stable=True))
    # Sorted backwards so that equal elements keep their order. Sorting -x fails for unsigned types, and for the least
    # integer.
    flipped = xp.argsort(xp.flip(x, axis), axis=axis, stable=True)
    return dispatch.give(xp, xp.flip(x.shape[axis] - 1 - flipped, axis))


def top_k(
    input: Tensor, k: SizeLike = 1, sorted: bool = True, index_type: DTypeLike = int32, name: str | None = None
) -> TopK:
    """Returns the `k` greatest of the last dimension, in falling order, `sorted` or not, and their indices.

    Source: tf.math.top_k.
    """
    xp, x = dispatch.pick(input)
    count = dispatch.to_static(k)
    if xp is dispatch.SYMBOLIC:
        return TopK(*dispatch.SYMBOLIC.top_k(x, count))
    order = dispatch.to_array(xp, argsort(x, direction="DESCENDING"))[..., :count]
    values = xp.take_along_axis(x, order, axis=-1)
    return TopK(
        dispatch.give_exact(xp, values), dispatch.give_exact(xp, order.astype(dispatch.usable_dtype(xp, index_type)))
    )


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, side: str = "left", out_type: DTypeLike = int32, name: str | None = None
) -> Tensor:
    """Returns where values belong in sorted rows; both may have leading dimensions in common.

    Source: tf.searchsorted.
    """
    xp, rows, x = dispatch.pick(sorted_sequence, values)
    if len(rows.shape) == 1:
        positions = xp.searchsorted(rows, x, side=side)
        return dispatch.give(xp, positions.astype(dispatch.usable_dtype(xp, out_type)))
    parts = [searchsorted(r, v, side, out_type) for r, v in zip(rows, x, strict=True)]
    return dispatch.give_exact(xp, xp.stack([dispatch.to_array(xp, p) for p in parts]))


def unique(x: Tensor, out_idx: DTypeLike = int32, name: str | None = None) -> Unique:
    """Returns the distinct elements of a vector in order of occurrence, and indices into them. Source: tf.unique."""
    return Unique(*unique_with_counts(x, out_idx)[:2])


def unique_with_counts(x: Tensor, out_idx: DTypeLike = int32, name: str | None = None) -> UniqueWithCounts:
    """Returns what `unique` returns, and how often each element occurs. Source: tf.unique_with_counts."""
    known = read_values("tf.unique", dispatch.pick(x)[1])
    values, first, inverse, counts = np.unique(known, return_index=True, return_inverse=True, return_counts=True)
    # numpy sorts the distinct elements; TensorFlow gives them in order of occurrence.
    order = np.argsort(first)
    rank = np.argsort(order)
    wanted = as_dtype(out_idx).dtype
    return UniqueWithCounts(
        as_host(values[order]), as_host(rank[inverse].astype(wanted)), as_host(counts[order].astype(wanted))
    )


def invert_permutation(x: Tensor, name: str | None = None) -> Tensor:
    """Returns the permutation that undoes another. Source: tf.math.invert_permutation."""
    xp, x = dispatch.pick(x)
    return dispatch.give_exact(xp, xp.argsort(x).astype(x.dtype))


def histogram_fixed_width(
    values: Tensor, value_range: Tensor, nbins: SizeLike = 100, dtype: DTypeLike = int32, name: str | None = None
) -> Tensor:
    """Counts values in `nbins` bins of equal width; those out of the range in the first and last.

    Source: tf.histogram_fixed_width.
    """
    xp, x, ends = dispatch.pick(values, value_range)
    bins = dispatch.to_static(nbins)
    place = xp.clip(xp.floor((x - ends[0]) / (ends[1] - ends[0]) * bins), 0, bins - 1)
    counts = xp.sum(xp.reshape(place, (-1, 1)) == xp.arange(bins), axis=0)
    return dispatch.give(xp, counts.astype(dispatch.usable_dtype(xp, dtype)))


named.record_names(globals())
