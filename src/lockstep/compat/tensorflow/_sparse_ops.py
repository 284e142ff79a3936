"""Functions of sparse tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO

from lockstep._types import Tensor
from lockstep.compat.tensorflow import _composite
from lockstep.compat.tensorflow._ops import arrays, create, dispatch, elementwise, segments
from lockstep.compat.tensorflow._sparse_tensor import SparseTensor, check_indices, places_of
from lockstep.compat.tensorflow._tensor import as_host, constant_array
from lockstep.compat.tensorflow._types import Argument, AxisLike, DTypeLike, ShapeLike
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["add", "concat", "eye", "expand_dims", "fill_empty_rows", "from_dense", "map_values", "mask", "maximum"]
__all__ += ["minimum", "reduce_max", "reduce_sum", "reorder", "reset_shape", "reshape", "retain", "slice", "softmax"]
__all__ += ["sparse_dense_matmul", "split", "to_dense", "to_indicator", "transpose"]


def to_dense(
    sp_input: Any, default_value: Tensor = None, validate_indices: bool = True, name: str | None = None
) -> Tensor:
    """Returns the whole, with `default_value` (0, or empty text) where there is no value.

    Raises:
        ArgumentError: If indices are outside of the shape, or out of order, unless `validate_indices` is false.

    Source: tf.sparse.to_dense.
    """
    if isinstance(sp_input, BCOO):
        # Of a layer of Keras with sparse=True.
        return sp_input.todense()
    if validate_indices:
        check_indices(sp_input)
    values, shape = sp_input.values, tuple(np.asarray(sp_input.dense_shape).tolist())
    fill: Any = (b"" if values.dtype == object else 0) if default_value is None else constant_array(default_value)
    index = tuple(np.asarray(sp_input.indices).T)
    if isinstance(values, jax.Array):
        return jnp.full(shape, fill, values.dtype).at[index].set(values)
    dense = np.full(shape, fill, np.asarray(values).dtype)
    dense[index] = np.asarray(values)
    return as_host(dense)


def from_dense(tensor: Tensor, name: str | None = None) -> SparseTensor:
    """Returns the elements that are not zero, or not empty text. Source: tf.sparse.from_dense."""
    array = np.asarray(tensor) if isinstance(tensor, jax.Array) else constant_array(tensor)
    is_value = array != (b"" if array.dtype == object else 0)
    index = np.argwhere(is_value)
    return SparseTensor(index, tensor[is_value] if isinstance(tensor, jax.Array) else array[is_value], array.shape)


def reorder(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """Returns the values in the order of their places, row by row. Source: tf.sparse.reorder."""
    return _take(sp_input, np.argsort(places_of(sp_input), kind="stable"))


def _take(tensor: SparseTensor, which: np.ndarray[Any, Any], shape: Any = None, shift: Any = 0) -> SparseTensor:
    """Returns some of the values, in a whole of another shape and at places moved by `shift`."""
    shape = tensor.dense_shape if shape is None else shape
    return SparseTensor(np.asarray(tensor.indices)[which] - shift, tensor.values[which], shape)


def reset_shape(sp_input: SparseTensor, new_shape: ShapeLike = None) -> SparseTensor:
    """Returns the values in a whole of another shape, by default the smallest that holds them.

    Source: tf.sparse.reset_shape.
    """
    index, shape = np.asarray(sp_input.indices), np.asarray(sp_input.dense_shape)
    if new_shape is None:
        wanted = index.max(axis=0) + 1 if len(index) else np.zeros_like(shape)
    else:
        wanted = np.asarray(new_shape, np.int64)
        if len(wanted) != len(shape) or (wanted < shape).any():
            raise ArgumentError(f"The shape must be at least {shape.tolist()}. Received: {wanted.tolist()}.")
    return SparseTensor(index, sp_input.values, wanted)


def slice(sp_input: SparseTensor, start: Tensor, size: Tensor, name: str | None = None) -> SparseTensor:
    """Returns the part that begins at `start` and has at most the shape `size`. Source: tf.sparse.slice."""
    begin = np.asarray(constant_array(start), np.int64)
    end = np.minimum(begin + np.asarray(constant_array(size), np.int64), np.asarray(sp_input.dense_shape))
    index = np.asarray(sp_input.indices)
    inside = ((index >= begin) & (index < end)).all(axis=1)
    return _take(sp_input, np.flatnonzero(inside), np.maximum(end - begin, 0), begin)


def concat(
    axis: int, sp_inputs: Sequence[SparseTensor], expand_nonconcat_dims: bool = False, name: str | None = None
) -> SparseTensor:
    """Returns sparse tensors one after another along an axis. Source: tf.sparse.concat."""
    axis = int(axis) % sp_inputs[0].rank
    shapes = np.stack([np.asarray(p.dense_shape) for p in sp_inputs])
    others = np.delete(shapes, axis, axis=1)
    if not expand_nonconcat_dims and (others != others[0]).any():
        raise ArgumentError(f"All sizes but those of axis {axis} must be equal. Received: {shapes.tolist()}.")
    starts = np.cumsum(shapes[:, axis]) - shapes[:, axis]
    unit = np.eye(shapes.shape[1], dtype=np.int64)[axis]
    index = np.concatenate([np.asarray(p.indices) + s * unit for p, s in zip(sp_inputs, starts, strict=True)])
    shape = shapes.max(axis=0)
    shape[axis] = shapes[:, axis].sum()
    return reorder(SparseTensor(index, arrays.concat([p.values for p in sp_inputs], 0), shape))


def split(sp_input: SparseTensor, num_split: int, axis: int, name: str | None = None) -> list[SparseTensor]:
    """Divides a sparse tensor along an axis; the first parts are one longer if need be. Source: tf.sparse.split."""
    axis, shape = int(axis) % sp_input.rank, np.asarray(sp_input.dense_shape)
    least, more = divmod(int(shape[axis]), int(num_split))
    parts, first = [], 0
    for number in np.arange(int(num_split)):
        start, size = np.zeros_like(shape), shape.copy()
        start[axis], size[axis] = first, least + (number < more)
        first += size[axis]
        parts.append(slice(sp_input, start, size))
    return parts


def transpose(sp_input: SparseTensor, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Returns the whole with its dimensions in another order. Source: tf.sparse.transpose."""
    order = np.arange(sp_input.rank)[::-1] if perm is None else np.asarray(constant_array(perm))
    index, shape = np.asarray(sp_input.indices)[:, order], np.asarray(sp_input.dense_shape)[order]
    return reorder(SparseTensor(index, sp_input.values, shape))


def reshape(sp_input: SparseTensor, shape: ShapeLike, name: str | None = None) -> SparseTensor:
    """Returns the whole in another shape, of which one size may be -1. Source: tf.sparse.reshape."""
    total = int(np.prod(np.asarray(sp_input.dense_shape)))
    sizes = np.asarray(dispatch.to_shape(shape), np.int64)
    known = int(np.prod(sizes[sizes >= 0]))
    sizes = np.where(sizes < 0, total // max(known, 1), sizes)
    if int(np.prod(sizes)) != total:
        raise ArgumentError(f"The shape must have {total} elements. Received: {sizes.tolist()}.")
    index = np.stack(np.unravel_index(places_of(sp_input), tuple(sizes.tolist())), axis=1)
    return SparseTensor(index, sp_input.values, sizes)


def expand_dims(sp_input: SparseTensor, axis: int | None = None, name: str | None = None) -> SparseTensor:
    """Returns the whole with a dimension of size 1 more, by default the last. Source: tf.sparse.expand_dims."""
    axis = -1 if axis is None else int(axis)
    axis = axis + sp_input.rank + 1 if axis < 0 else axis
    index = np.insert(np.asarray(sp_input.indices), axis, 0, axis=1)
    return SparseTensor(index, sp_input.values, np.insert(np.asarray(sp_input.dense_shape), axis, 1))


def retain(sp_input: SparseTensor, to_retain: Tensor) -> SparseTensor:
    """Returns the values for which `to_retain` is true. Source: tf.sparse.retain."""
    return _take(sp_input, np.flatnonzero(np.asarray(constant_array(to_retain))))


def fill_empty_rows(sp_input: SparseTensor, default_value: Tensor, name: str | None = None) -> tuple[Any, Any]:
    """Returns the tensor with `default_value` in the first column of each empty row, and which rows were empty.

    Source: tf.sparse.fill_empty_rows.
    """
    rows = int(np.asarray(sp_input.dense_shape)[0])
    index = np.asarray(sp_input.indices)
    is_empty = np.bincount(index[:, 0], minlength=rows) == 0
    new = np.zeros((int(is_empty.sum()), sp_input.rank), np.int64)
    new[:, 0] = np.flatnonzero(is_empty)
    values = np.asarray(sp_input.values)
    fill = np.full(len(new), constant_array(default_value).astype(values.dtype)[()], values.dtype)
    whole = SparseTensor(np.concatenate([index, new]), np.concatenate([values, fill]), sp_input.dense_shape)
    return reorder(whole), as_host(is_empty)


def to_indicator(sp_input: SparseTensor, vocab_size: int, name: str | None = None) -> Tensor:
    """Returns for each row which of the numbers below `vocab_size` are among its values, as truth values.

    Source: tf.sparse.to_indicator.
    """
    index, values = np.asarray(sp_input.indices), np.asarray(sp_input.values)
    if len(values) and (values.min() < 0 or values.max() >= vocab_size):
        raise ArgumentError(f"Values must be in [0, {vocab_size}). Received: {values.min()} to {values.max()}.")
    dense = np.zeros((*np.asarray(sp_input.dense_shape)[:-1], int(vocab_size)), np.bool_)
    dense[(*index[:, :-1].T, values)] = True
    return as_host(dense)


def sparse_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """Multiplies a sparse matrix with a dense one, or the other way round. Source: tf.sparse.sparse_dense_matmul."""
    if isinstance(b, SparseTensor):
        # (a b)^T = b^T a^T.
        product = sparse_dense_matmul(b, sp_a, not adjoint_b, not adjoint_a)
        return arrays.transpose(product)
    sparse = transpose(sp_a) if adjoint_a else sp_a
    dense = arrays.transpose(b) if adjoint_b else b
    xp, matrix, values = dispatch.pick(dense, sparse.values)
    index, shape = np.asarray(sparse.indices), np.asarray(sparse.dense_shape)
    if int(shape[1]) != int(matrix.shape[0]):
        raise ArgumentError(f"Sizes must go together. Received {shape.tolist()} and {list(matrix.shape)}.")
    rows = xp.take(matrix, index[:, 1], axis=0) * values[:, None]
    return segments.unsorted_segment_sum(dispatch.give(xp, rows), index[:, 0], int(shape[0]))


def _reduction(name: str, reduce: Callable[..., Any], summary: str) -> Callable[..., Any]:
    def function(
        sp_input: SparseTensor,
        axis: AxisLike = None,
        keepdims: bool = False,
        output_is_sparse: bool = False,
        name: str | None = None,
    ) -> Any:
        shape, index = np.asarray(sp_input.dense_shape), np.asarray(sp_input.indices)
        axes = set(np.arange(len(shape)).tolist() if axis is None else [int(a) % len(shape) for a in np.ravel(axis)])
        kept = [a for a in np.arange(len(shape)).tolist() if a not in axes]
        sizes = tuple(shape[kept].tolist())
        group = np.ravel_multi_index(tuple(index[:, kept].T), sizes) if kept else np.zeros(len(index), np.int64)
        count = int(np.prod(sizes)) if kept else 1
        reduced = reduce(sp_input.values, group, count)
        # Where there is no value the result is 0, also of the maximum.
        is_filled = np.bincount(group, minlength=count) > 0
        xp, numbers = dispatch.pick(reduced)
        numbers = xp.where(is_filled, numbers, xp.zeros((), numbers.dtype))
        full = [1 if a in axes else int(shape[a]) for a in np.arange(len(shape))] if keepdims else sizes
        result = dispatch.give(xp, numbers.reshape(tuple(full)))
        return from_dense(result) if output_is_sparse else result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary}\n\nSource: tf.sparse.{name}."
    return function


reduce_sum = _reduction("reduce_sum", segments.unsorted_segment_sum, "Adds the values, all or along the axes.")
reduce_max = _reduction(
    "reduce_max", segments.unsorted_segment_max, "Returns the greatest value, of all or along the axes."
)


def map_values(op: Callable[..., Any], *args: Argument, **kwargs: Argument) -> SparseTensor:
    """Applies a function to the values of sparse tensors with the same places. Source: tf.sparse.map_values."""
    first = next(a for a in (*args, *kwargs.values()) if isinstance(a, SparseTensor))

    def values_of(value: Any) -> Any:
        return value.values if isinstance(value, SparseTensor) else value

    return first.with_values(op(*map(values_of, args), **{k: values_of(v) for k, v in kwargs.items()}))


def add(a: Any, b: Any, threshold: Tensor = 0) -> Any:
    """Adds sparse tensors, or a sparse and a dense one, which gives a dense one. Source: tf.sparse.add."""
    if not (isinstance(a, SparseTensor) and isinstance(b, SparseTensor)):
        sparse, dense = (a, b) if isinstance(a, SparseTensor) else (b, a)
        return elementwise.add(to_dense(sparse), dense)
    return _combine(np.add, a, b, np.asarray(threshold))


def maximum(sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None) -> SparseTensor:
    """Returns the greater of each two values, of which a missing one is 0. Source: tf.sparse.maximum."""
    return _combine(np.maximum, sp_a, sp_b)


def minimum(sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None) -> SparseTensor:
    """Returns the smaller of each two values, of which a missing one is 0. Source: tf.sparse.minimum."""
    return _combine(np.minimum, sp_a, sp_b)


def _combine(function: Any, a: SparseTensor, b: SparseTensor, threshold: Any = None) -> SparseTensor:
    shape = np.asarray(a.dense_shape)
    if not np.array_equal(shape, np.asarray(b.dense_shape)):
        raise ArgumentError(f"Shapes must be equal. Received: {a.shape} and {b.shape}.")
    places = np.union1d(places_of(a), places_of(b))
    sides = []
    for part in (a, b):
        side = np.zeros(len(places), np.asarray(part.values).dtype)
        side[np.searchsorted(places, places_of(part))] = np.asarray(part.values)
        sides.append(side)
    values = function(*sides)
    index = np.stack(np.unravel_index(places, tuple(shape.tolist())), axis=1)
    # A sum that is small enough is left out, if the program says what small is.
    kept = np.abs(values) >= threshold if threshold is not None and threshold > 0 else np.full(len(values), True)
    return SparseTensor(index[kept], values[kept], shape)


def mask(a: Any, mask_indices: Tensor, name: str | None = None) -> Any:
    """Returns IndexedSlices without those of `mask_indices`. Source: tf.sparse.mask."""
    from lockstep.compat.tensorflow._indexed_slices import IndexedSlices

    kept = np.flatnonzero(~np.isin(np.asarray(a.indices), np.asarray(constant_array(mask_indices))))
    return IndexedSlices(a.values[kept], as_host(np.asarray(a.indices)[kept]), a.dense_shape)


def eye(num_rows: int, num_columns: int | None = None, dtype: DTypeLike = "float32", name: str | None = None) -> Any:
    """Returns an identity matrix. Source: tf.sparse.eye."""
    columns = int(num_rows if num_columns is None else num_columns)
    places = np.arange(min(int(num_rows), columns))
    return SparseTensor(np.stack([places, places], 1), create.ones([len(places)], dtype), [int(num_rows), columns])


def softmax(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """Returns the softmax of the values of each row; missing ones do not count. Source: tf.sparse.softmax."""
    index, shape = np.asarray(sp_input.indices), np.asarray(sp_input.dense_shape)
    rows = np.ravel_multi_index(tuple(index[:, :-1].T), tuple(shape[:-1].tolist()))
    count = int(np.prod(shape[:-1]))
    xp, values = dispatch.pick(sp_input.values)
    top = dispatch.to_array(xp, segments.unsorted_segment_max(sp_input.values, rows, count))
    powers = xp.exp(values - xp.take(top, rows, axis=0))
    total = dispatch.to_array(xp, segments.unsorted_segment_sum(dispatch.give(xp, powers), rows, count))
    return sp_input.with_values(dispatch.give(xp, powers / xp.take(total, rows, axis=0)))


_NUMBERS = {"cast", "abs", "negative", "sign", "square", "sqrt", "exp", "identity", "sin", "tanh", "round"}
_TEXTS = {"to_number", "as_string", "lower", "upper", "to_hash_bucket_fast", "to_hash_bucket_strong", "strip"}
_BY_VALUE = _NUMBERS | _TEXTS


def compute(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Computes a function of this package for sparse arguments."""
    if name in _BY_VALUE:
        return map_values(function, *args, **kwargs)
    first = args[0] if args else next(iter(kwargs.values()))
    if name in ("convert_to_tensor", "type_spec_from_value"):
        return first if name == "convert_to_tensor" else first.spec
    if name == "shape":
        return create.cast(first.dense_shape, kwargs.get("out_type", args[1] if len(args) > 1 else "int32"))
    if name in ("rank", "size"):
        return as_host(np.int32(first.rank if name == "rank" else int(np.prod(np.asarray(first.dense_shape)))))
    raise UnsupportedError(
        f"tf.{name} does not compute with sparse tensors. Use the function of tf.sparse, or tf.sparse.to_dense before."
    )


def _multiply(self: SparseTensor, other: Any) -> SparseTensor:
    """Multiplies values with a number, or with a tensor's elements at their places."""
    return self.with_values(elementwise.multiply(self.values, _at(self, other)))


def _divide(self: SparseTensor, other: Any) -> SparseTensor:
    """Divides values by a number, or by a tensor's elements at their places."""
    return self.with_values(elementwise.truediv(self.values, _at(self, other)))


def _at(tensor: SparseTensor, other: Any) -> Any:
    if np.ndim(other) == 0:
        return other
    dense = np.broadcast_to(np.asarray(constant_array(other)), tuple(tensor.shape))
    return dense[tuple(np.asarray(tensor.indices).T)]


# Parsed examples of lockstep.data have this method; feature columns ask for it.
SparseTensor.to_dense = to_dense  # pyright: ignore[reportAttributeAccessIssue]
SparseTensor.__mul__ = SparseTensor.__rmul__ = _multiply  # pyright: ignore[reportAttributeAccessIssue]
SparseTensor.__truediv__ = _divide  # pyright: ignore[reportAttributeAccessIssue]
_composite.handlers[SparseTensor] = compute
