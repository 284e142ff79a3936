"""tf.RaggedTensor: rows of different lengths, as the values one after another and where each row begins."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._composite import CompositeTensor, spec_classes
from lockstep.compat.tensorflow._dtypes import as_dtype, dtype_of, int64
from lockstep.compat.tensorflow._ragged_rows import count_rows, indices_of, positions_of, take_columns, take_rows
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._tensor import HostTensor, as_host, constant_array
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["RaggedTensor"]


class RaggedTensor(CompositeTensor):
    """Rows of different lengths. Create one with `tf.ragged.constant` or a `from_...` method.

    The lengths are values of the host; the elements are a tensor of the host or of JAX. JAX compiles for fixed shapes:
    convert it with `to_tensor` before a step, in `Dataset.map` for example.

    Attributes:
        values: The rows one after another: a tensor, or a RaggedTensor if rows hold ragged rows themselves.
        row_splits: int64 (rows + 1,): where each row begins, and where the last one ends.
        splits: The same as an array of numpy.

    Source: tf.RaggedTensor.
    """

    def __init__(self, values: Any, row_splits: Tensor, uniform: int | None = None) -> None:
        """Takes parts that go together; programs use `from_row_splits`."""
        self.values = values if isinstance(values, (RaggedTensor, jax.Array)) else as_host(constant_array(values))
        self.splits = np.asarray(row_splits, np.int64)
        self.uniform_row_length = uniform

    @classmethod
    def from_row_splits(cls, values: Any, row_splits: Tensor, name: str | None = None, validate: bool = True) -> Any:
        """Makes rows of where each begins, and where the last one ends.

        Raises:
            ArgumentError: If the splits do not begin with 0, decrease, or end elsewhere than the values.
        """
        result = cls(values, row_splits)
        splits, count = result.splits, count_rows(result.values)
        if splits.ndim != 1 or not len(splits) or splits[0] or (np.diff(splits) < 0).any() or splits[-1] != count:
            raise ArgumentError(
                f"Splits of rows must begin with 0, not decrease, and end with the number of values, {count}. "
                f"Received: {splits.tolist()}."
            )
        return result

    @classmethod
    def from_row_lengths(cls, values: Any, row_lengths: Tensor, name: str | None = None, validate: bool = True) -> Any:
        """Makes rows of the length of each."""
        lengths = np.asarray(constant_array(row_lengths), np.int64)
        return cls.from_row_splits(values, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def from_row_starts(cls, values: Any, row_starts: Tensor, name: str | None = None, validate: bool = True) -> Any:
        """Makes rows of where each begins."""
        starts = np.asarray(constant_array(row_starts), np.int64)
        count = count_rows(cls(values, [0]).values)
        return cls.from_row_splits(values, np.append(starts, count))

    @classmethod
    def from_row_limits(cls, values: Any, row_limits: Tensor, name: str | None = None, validate: bool = True) -> Any:
        """Makes rows of where each ends."""
        return cls.from_row_splits(values, np.append(0, np.asarray(constant_array(row_limits), np.int64)))

    @classmethod
    def from_value_rowids(
        cls, values: Any, value_rowids: Tensor, nrows: Any = None, name: str | None = None, validate: bool = True
    ) -> Any:
        """Makes rows of each value's row, sorted; of `nrows` rows, by default as many as the last value says."""
        ids = np.asarray(constant_array(value_rowids), np.int64).reshape(-1)
        if len(ids) and ((np.diff(ids) < 0).any() or ids[0] < 0):
            raise ArgumentError(f"Rows of values must be sorted, and not negative. Received: {ids.tolist()}.")
        rows = int(nrows) if nrows is not None else int(ids[-1]) + 1 if len(ids) else 0
        if len(ids) and ids[-1] >= rows:
            raise ArgumentError(f"Rows of values must be below nrows, {rows}. Received: {ids[-1]}.")
        return cls.from_row_lengths(values, np.bincount(ids, minlength=rows))

    @classmethod
    def from_uniform_row_length(
        cls, values: Any, uniform_row_length: Any, nrows: Any = None, name: str | None = None, validate: bool = True
    ) -> Any:
        """Makes rows of one length."""
        length, count = int(uniform_row_length), count_rows(cls(values, [0]).values)
        rows = int(nrows) if nrows is not None else count // length if length else 0
        if rows * length != count:
            raise ArgumentError(f"{count} values must fill rows of {length} each. Received: nrows={nrows}.")
        return cls(values, np.arange(rows + 1) * length, length)

    @classmethod
    def from_nested_row_splits(
        cls, flat_values: Any, nested_row_splits: Sequence[Any], name: str | None = None, validate: bool = True
    ) -> Any:
        """Makes rows of rows of splits, the outermost first."""
        for splits in reversed(nested_row_splits):
            flat_values = cls.from_row_splits(flat_values, splits)
        return flat_values

    @classmethod
    def from_nested_row_lengths(
        cls, flat_values: Any, nested_row_lengths: Sequence[Any], name: str | None = None, validate: bool = True
    ) -> Any:
        """Makes rows of rows of lengths, the outermost first."""
        for lengths in reversed(nested_row_lengths):
            flat_values = cls.from_row_lengths(flat_values, lengths)
        return flat_values

    @classmethod
    def from_nested_value_rowids(
        cls,
        flat_values: Any,
        nested_value_rowids: Sequence[Any],
        nested_nrows: Sequence[Any] | None = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Makes rows of rows of each value's row, the outermost first."""
        counts = nested_nrows or [None] * len(nested_value_rowids)
        for ids, rows in zip(reversed(nested_value_rowids), reversed(counts), strict=True):
            flat_values = cls.from_value_rowids(flat_values, ids, rows)
        return flat_values

    @classmethod
    def from_tensor(
        cls,
        tensor: Tensor,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: DTypeLike = int64,
    ) -> Any:
        """Makes rows of a tensor's: whole, cut to `lengths`, or without what equals `padding` at their ends."""
        if lengths is not None and padding is not None:
            raise ArgumentError("Rows are cut by lengths or by padding. Received: both; leave one out.")
        array = tensor if isinstance(tensor, jax.Array) else constant_array(tensor)
        if array.ndim <= ragged_rank:
            raise ArgumentError(f"ragged_rank must be below the rank. Received: {ragged_rank} and {array.ndim}.")
        if ragged_rank > 1:
            inner = cls.from_tensor(array.reshape(-1, *array.shape[2:]), lengths, padding, ragged_rank - 1)
            return cls.from_uniform_row_length(inner, array.shape[1], array.shape[0])
        count, size = array.shape[:2]
        if lengths is None and padding is None:
            return cls(array.reshape(-1, *array.shape[2:]), np.arange(count + 1) * size)
        if padding is not None:
            fill = constant_array(padding)
            differs = (np.asarray(array) != fill).reshape(count, size, -1).any(axis=2)
            lengths = np.where(differs.any(axis=1), size - np.argmax(differs[:, ::-1], axis=1), 0)
        kept = np.minimum(np.asarray(constant_array(lengths), np.int64), size)
        return cls.from_row_lengths(array[np.arange(size) < kept[:, None]], kept)

    @classmethod
    def from_sparse(cls, st_input: Any, name: str | None = None, row_splits_dtype: DTypeLike = int64) -> Any:
        """Makes rows of a SparseTensor of two dimensions, whose values stand at the beginning of each row."""
        indices = np.asarray(st_input.indices)
        result = cls.from_value_rowids(st_input.values, indices[:, 0], int(np.asarray(st_input.dense_shape)[0]))
        if not np.array_equal(positions_of(result.splits), indices[:, 1]):
            raise ArgumentError("The values of each row must stand at its beginning, one after another, in order.")
        return result

    @property
    def row_splits(self) -> HostTensor:
        """Where each row begins, and where the last one ends."""
        return as_host(self.splits)

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return dtype_of(self.flat_values.dtype)

    @property
    def spec(self) -> Any:
        """The spec of the tensor."""
        return spec_classes[RaggedTensor].from_value(self)

    @property
    def ragged_rank(self) -> int:
        """How many dimensions are divided into rows of different lengths."""
        return 1 + (self.values.ragged_rank if isinstance(self.values, RaggedTensor) else 0)

    @property
    def flat_values(self) -> Any:
        """The values of the innermost rows."""
        return self.values.flat_values if isinstance(self.values, RaggedTensor) else self.values

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """The splits, those of the outermost rows first."""
        inner = self.values.nested_row_splits if isinstance(self.values, RaggedTensor) else ()
        return (self.row_splits, *inner)

    @property
    def shape(self) -> TensorShape:
        """The sizes, `None` where rows differ."""
        return TensorShape([len(self.splits) - 1, self.uniform_row_length, *tuple(self.values.shape)[1:]])

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def get_shape(self) -> TensorShape:
        """Returns the shape."""
        return self.shape

    def nrows(self, out_type: DTypeLike = int64, name: str | None = None) -> HostTensor:
        """Returns the number of rows."""
        return as_host(np.asarray(len(self.splits) - 1, as_dtype(out_type).dtype))

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """Returns the length of each row, of the dimension `axis`."""
        if axis == 1:
            return as_host(np.diff(self.splits))
        if not isinstance(self.values, RaggedTensor):
            raise ArgumentError(f"axis must be in [1, {self.ragged_rank}]. Received one beyond it.")
        return self.with_values(self.values.row_lengths(axis - 1))

    def nested_row_lengths(self, name: str | None = None) -> tuple[Any, ...]:
        """Returns the lengths, those of the outermost rows first."""
        return tuple(as_host(np.diff(np.asarray(s))) for s in self.nested_row_splits)

    def row_starts(self, name: str | None = None) -> HostTensor:
        """Returns where each row begins."""
        return as_host(self.splits[:-1])

    def row_limits(self, name: str | None = None) -> HostTensor:
        """Returns where each row ends."""
        return as_host(self.splits[1:])

    def value_rowids(self, name: str | None = None) -> HostTensor:
        """Returns the row of each value."""
        return as_host(np.repeat(np.arange(len(self.splits) - 1), np.diff(self.splits)))

    def nested_value_rowids(self, name: str | None = None) -> tuple[Any, ...]:
        """Returns the rows of values, those of the outermost first."""
        inner = self.values.nested_value_rowids() if isinstance(self.values, RaggedTensor) else ()
        return (self.value_rowids(), *inner)

    def bounding_shape(self, axis: Any = None, name: str | None = None, out_type: DTypeLike = int64) -> Any:
        """Returns the shape of the smallest tensor that holds all rows, or its sizes at `axis`."""
        longest = int(np.diff(self.splits).max(initial=0))
        inner = self.values
        rest = inner.bounding_shape().tolist() if isinstance(inner, RaggedTensor) else list(inner.shape)
        sizes = np.array([len(self.splits) - 1, longest, *rest[1:]], as_dtype(out_type).dtype)
        return as_host(sizes if axis is None else sizes[np.asarray(axis)])

    def with_values(self, new_values: Any) -> RaggedTensor:
        """Returns the rows with other values, one for each."""
        if count_rows(new_values) != self.splits[-1]:
            raise ArgumentError(f"There must be {self.splits[-1]} values. Received: {count_rows(new_values)}.")
        return RaggedTensor(new_values, self.splits, self.uniform_row_length)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """Returns the rows with other values of the innermost rows."""
        inner = self.values
        return self.with_values(inner.with_flat_values(new_values) if isinstance(inner, RaggedTensor) else new_values)

    def with_row_splits_dtype(self, dtype: DTypeLike) -> RaggedTensor:
        """Returns the rows themselves: splits are int64 here."""
        return self

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """Returns the tensor with the dimensions from one to the other as one."""
        outer, inner = (a + self.rank if a < 0 else a for a in (outer_axis, inner_axis))
        if outer == inner:
            return self
        values: Any = self.values
        if outer > 1:
            if isinstance(values, RaggedTensor):
                return self.with_values(values.merge_dims(outer - 1, inner - 1))
            shape = tuple(values.shape)
            return self.with_values(values.reshape(*shape[: outer - 1], -1, *shape[inner:]))
        if outer == 1:
            if isinstance(values, RaggedTensor):
                # A row of rows is their elements, one after another.
                merged = RaggedTensor(values.values, values.splits[self.splits])
                return merged if inner == 2 else merged.merge_dims(1, inner - 1)
            shape = tuple(values.shape)
            return RaggedTensor(values.reshape(-1, *shape[inner:]), self.splits * int(np.prod(shape[1:inner])))
        # The rows of rows lose where the outer ones begin.
        if inner == 1:
            return values
        if isinstance(values, RaggedTensor):
            return values.merge_dims(0, inner - 1)
        return values.reshape(-1, *tuple(values.shape)[inner:])

    def to_tensor(self, default_value: Any = None, name: str | None = None, shape: ShapeLike = None) -> Any:
        """Returns a tensor of one shape, with `default_value` (0, or empty text) behind shorter rows.

        `shape` has sizes to cut or fill to, each `None` for that of the longest row.
        """
        sizes = [None] * self.rank if shape is None else list(TensorShape(shape))
        values = self.values
        if isinstance(values, RaggedTensor):
            values = values.to_tensor(default_value, shape=[None, *sizes[2:]])
        xp: Any = jax.numpy if isinstance(values, jax.Array) else np
        values = values if xp is not np else np.asarray(values)
        lengths, dtype = np.diff(self.splits), values.dtype
        longest = int(lengths.max(initial=0)) if sizes[1] is None else sizes[1]
        columns = np.arange(longest)
        is_value = columns < lengths[:, None]
        fill = (b"" if dtype.kind == "O" else 0) if default_value is None else constant_array(default_value)
        if not count_rows(values):
            rest = values.shape[1:]
            dense = xp.full((len(lengths), longest, *rest), fill, dtype)
        else:
            # Positions beyond a row are any value: they are replaced.
            where = np.where(is_value, self.splits[:-1, None] + columns, 0)
            mask = is_value.reshape(*is_value.shape, *(1,) * (values.ndim - 1))
            dense = xp.where(mask, xp.take(values, where, axis=0), xp.asarray(fill, dtype))
        if sizes[0] is not None:
            missing = sizes[0] - len(lengths)
            widths = [(0, max(missing, 0)), *[(0, 0)] * (dense.ndim - 1)]
            dense = xp.pad(dense[: sizes[0]], widths, constant_values=fill)
        return as_host(dense) if xp is np else dense

    def to_sparse(self, name: str | None = None) -> Any:
        """Returns a SparseTensor of the values, and where each stands."""
        from lockstep.compat.tensorflow._sparse_tensor import SparseTensor

        index = indices_of(self)
        return SparseTensor(index, self.flat_values.reshape(-1), self.bounding_shape())

    def to_list(self) -> list[Any]:
        """Returns nested lists of Python's values."""
        rows = self.values.to_list() if isinstance(self.values, RaggedTensor) else np.asarray(self.values).tolist()
        return [rows[a:b] for a, b in zip(self.splits[:-1], self.splits[1:], strict=True)]

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns an array: of arrays if rows differ in length, else of one shape."""
        rows = [row.numpy() if isinstance(row, RaggedTensor) else np.asarray(row) for row in self]
        if len({r.shape for r in rows}) == 1 and all(r.dtype != object or self.dtype == object for r in rows):
            return np.stack(rows)
        result = np.empty(len(rows), object)
        result[:] = rows
        return result

    def consumers(self) -> list[Any]:
        """Returns an empty list: there is no graph."""
        return []

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self.splits) - 1))

    def __getitem__(self, key: Any) -> Any:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            given = sum(k is not None for k in keys) - 1
            keys[at : at + 1] = [slice(None)] * (self.rank - given)
        first, rest = (keys[0], keys[1:]) if keys else (slice(None), [])
        if first is None:
            return RaggedTensor(self[tuple(rest)] if rest else self, [0, len(self.splits) - 1])
        if not isinstance(first, slice):
            row = operator.index(first)
            count = len(self.splits) - 1
            if not -count <= row < count:
                raise ArgumentError(f"A row must be in [0, {count}). Received: {row}.")
            row %= count
            found = self.values[int(self.splits[row]) : int(self.splits[row + 1])]
            return found[tuple(rest)] if rest else found
        chosen = self if first == slice(None) else take_rows(self, np.arange(len(self.splits) - 1)[first])
        return take_columns(chosen, rest) if rest else chosen

    def __repr__(self) -> str:
        return f"<tf.RaggedTensor {_text_of(self)}>"

    def __bool__(self) -> bool:
        raise TypeError("A RaggedTensor is neither true nor false. Ask its nrows(), or tf.reduce_all of it.")

    __hash__ = object.__hash__


def _text_of(value: Any) -> str:
    # numpy's shortest text of a number of 32 bits; repr of Python's would have 17 digits.
    if not isinstance(value, RaggedTensor) and np.ndim(value) == 0:
        return str(np.asarray(value)[()])
    return f"[{', '.join(map(_text_of, value))}]"
