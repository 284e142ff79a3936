"""Ragged and sparse tensors as elements of datasets: their batches, rows and specs; `ragged_batch`, `sparse_batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._types import PyTree
from lockstep.compat.tensorflow._dtypes import DType, as_dtype
from lockstep.compat.tensorflow._ragged_ops import stack_ragged
from lockstep.compat.tensorflow._ragged_tensor import RaggedTensor, RaggedTensorSpec
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._sparse_tensor import SparseTensor, SparseTensorSpec
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.compat.tensorflow.data._ragged_row import RaggedRow
from lockstep.data.internal import CompositeKind, Ragged, TensorSpec, register_composite
from lockstep.errors import ArgumentError, InputError

__all__ = ["RaggedCollate", "SparseCollate"]


def _ragged_rows(value: RaggedTensor) -> Sequence[Any]:
    spec = _row_of_ragged(value.spec)
    return [RaggedRow(np.asarray(row), spec) if spec.ragged_rank == 0 else row for row in value]


def _stack_ragged(values: Sequence[Any]) -> RaggedTensor:
    if not isinstance(values[0], RaggedRow):
        return stack_ragged(values)
    arrays = [row.array for row in values]
    return RaggedTensor.from_row_lengths(np.concatenate(arrays), [len(a) for a in arrays])


def _batch_of_ragged(spec: Any, size: int | None) -> RaggedTensorSpec:
    return RaggedTensorSpec([size, *spec.shape], spec.dtype, spec.ragged_rank + 1, spec.row_splits_dtype)


def _row_of_ragged(spec: Any) -> RaggedTensorSpec:
    return RaggedTensorSpec(spec.shape[1:], spec.dtype, spec.ragged_rank - 1, spec.row_splits_dtype)


def _wider_ragged(one: Any, other: Any) -> RaggedTensorSpec | None:
    if (one.dtype, one.ragged_rank) != (other.dtype, other.ragged_rank):
        return None
    shape = one.shape.most_specific_compatible_shape(other.shape)
    return RaggedTensorSpec(shape, one.dtype, one.ragged_rank, one.row_splits_dtype)


def _sparse_rows(value: SparseTensor) -> Sequence[SparseTensor]:
    indices, values, shape = (np.asarray(v) for v in (value.indices, value.values, value.dense_shape))
    chosen = [indices[:, 0] == row for row in range(int(shape[0]))]
    return [SparseTensor(indices[rows, 1:], values[rows], shape[1:]) for rows in chosen]


def _stack_sparse(values: Sequence[Any]) -> SparseTensor:
    indices = [np.asarray(v.indices) for v in values]
    numbered = [np.insert(where, 0, row, axis=1) for row, where in enumerate(indices)]
    # The largest of the batch, as TensorFlow has it.
    shape = np.max([np.asarray(v.dense_shape) for v in values], axis=0)
    every = np.concatenate([np.asarray(v.values) for v in values])
    return SparseTensor(np.concatenate(numbered), every, [len(values), *shape])


def _wider_sparse(one: Any, other: Any) -> SparseTensorSpec | None:
    if one.dtype != other.dtype:
        return None
    return SparseTensorSpec(one.shape.most_specific_compatible_shape(other.shape), one.dtype)


_RAGGED = CompositeKind(
    spec_of=lambda value: value.spec,
    stack=_stack_ragged,
    rows=_ragged_rows,
    batch_spec=_batch_of_ragged,
    row_spec=_row_of_ragged,
    widen=_wider_ragged,
)
register_composite(RaggedTensor, RaggedTensorSpec, _RAGGED)
register_composite(RaggedRow, RaggedTensorSpec, _RAGGED)
register_composite(
    SparseTensor,
    SparseTensorSpec,
    CompositeKind(
        spec_of=lambda value: value.spec,
        stack=_stack_sparse,
        rows=_sparse_rows,
        batch_spec=lambda spec, size: SparseTensorSpec([size, *spec.shape], spec.dtype),
        row_spec=lambda spec: SparseTensorSpec(spec.shape[1:], spec.dtype),
        widen=_wider_sparse,
    ),
)


class RaggedCollate:
    """The batches of `ragged_batch`: of arrays whose sizes are not known, ragged tensors.

    Args:
        spec: Returns the spec of the elements.
        row_splits_dtype: tf.int32 or tf.int64, of the spec; splits are int64.
    """

    def __init__(self, spec: Callable[[], Any], row_splits_dtype: DTypeLike) -> None:
        self._spec_of_elements = spec
        self._splits: DType = as_dtype(row_splits_dtype)
        if self._splits.name not in ("int32", "int64"):
            raise ArgumentError(f"row_splits_dtype must be tf.int32 or tf.int64. Received: {self._splits}.")

    def spec(self, spec: PyTree) -> Any:
        """Returns the spec of the elements as rows of ragged tensors."""
        return jax.tree.map(self._row_spec, spec)

    def __call__(self, columns: Any) -> Any:
        """Returns a batch."""
        return jax.tree.map(self._collate, self._spec_of_elements(), columns)

    def _row_spec(self, leaf: Any) -> Any:
        if not isinstance(leaf, TensorSpec) or (leaf.shape is not None and None not in leaf.shape):
            return leaf
        if leaf.shape is None:
            raise InputError("ragged_batch needs elements with a known number of axes. Declare their shapes.")
        rank = max(axis for axis, size in enumerate(leaf.shape) if size is None)
        return RaggedTensorSpec(leaf.shape, leaf.dtype, rank, self._splits)

    def _collate(self, spec: Any, column: Any) -> Any:
        row = self._row_spec(spec)
        if type(row) is not RaggedTensorSpec:
            return column
        values = list(column.values if isinstance(column, Ragged) else column)
        if isinstance(values[0], (RaggedRow, RaggedTensor)):
            return _stack_ragged(values)
        if row.ragged_rank:
            return stack_ragged([RaggedTensor.from_tensor(v, ragged_rank=row.ragged_rank) for v in values])
        return RaggedTensor.from_row_lengths(np.concatenate(values), [len(v) for v in values])


class SparseCollate:
    """The batches of `sparse_batch`: sparse tensors of arrays that are no larger than `row_shape`."""

    def __init__(self, row_shape: ShapeLike) -> None:
        self._shape = TensorShape([None if n is None or int(n) < 0 else int(n) for n in row_shape])

    def spec(self, spec: PyTree) -> Any:
        """Returns the spec of the elements as rows of sparse tensors."""
        return jax.tree.map(lambda leaf: SparseTensorSpec(self._shape, leaf.dtype), spec)

    def __call__(self, columns: Any) -> Any:
        """Returns a batch."""
        return jax.tree.map(self._collate, columns)

    def _collate(self, column: Any) -> SparseTensor:
        values = [np.asarray(v) for v in (column.values if isinstance(column, Ragged) else column)]
        for value in values:
            if value.ndim != len(self._shape) or any(
                n is not None and size > n for size, n in zip(value.shape, self._shape, strict=True)
            ):
                raise InputError(
                    f"Dense elements of sparse_batch must fit into row_shape, {self._shape}. Received: one of shape "
                    f"{value.shape}. Give a larger row_shape, or cut them with map."
                )
        largest = np.max([v.shape for v in values], axis=0).tolist()
        shape = [size if n is None else n for size, n in zip(largest, self._shape, strict=True)]
        indices = [np.argwhere(np.ones(v.shape, bool)) for v in values]
        numbered = [np.insert(where, 0, row, axis=1) for row, where in enumerate(indices)]
        every = np.concatenate([v.ravel() for v in values])
        return SparseTensor(np.concatenate(numbered), every, [len(values), *shape])
