"""Ragged and sparse tensors as values of datasets' elements: how they are batched and taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.compat.tensorflow._ragged_ops import stack_ragged
from lockstep.compat.tensorflow._ragged_spec import RaggedTensorSpec
from lockstep.compat.tensorflow._ragged_tensor import RaggedTensor
from lockstep.compat.tensorflow._sparse_tensor import SparseTensor, SparseTensorSpec
from lockstep.compat.tensorflow.data._ragged_row import RaggedRow
from lockstep.data.internal import CompositeKind, register_composite

__all__ = ["RaggedTensor", "RaggedTensorSpec", "SparseTensor", "SparseTensorSpec", "stack_rows"]


def _ragged_rows(value: RaggedTensor) -> Sequence[Any]:
    spec = _row_of_ragged(value.spec)
    return [RaggedRow(np.asarray(row), spec) if spec.ragged_rank == 0 else row for row in value]


def stack_rows(values: Sequence[Any]) -> RaggedTensor:
    """Returns rows of one ragged tensor, or ragged tensors, as one."""
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
    stack=stack_rows,
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
