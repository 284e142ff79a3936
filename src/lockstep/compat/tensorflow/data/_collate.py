"""`ragged_batch` and `sparse_batch`: batches of arrays that differ in shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._types import PyTree
from lockstep.compat.tensorflow._composite_elements import stack_rows
from lockstep.compat.tensorflow._dtypes import DType, as_dtype
from lockstep.compat.tensorflow._ragged_spec import RaggedTensorSpec
from lockstep.compat.tensorflow._ragged_tensor import RaggedTensor
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._sparse_tensor import SparseTensor, SparseTensorSpec
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.compat.tensorflow.data._ragged_row import RaggedRow
from lockstep.data.internal import Ragged, TensorSpec
from lockstep.errors import ArgumentError, InputError

__all__ = ["RaggedCollate", "SparseCollate"]


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
            return stack_rows(values)
        return _ragged_of(values, row.ragged_rank)


def _ragged_of(values: Sequence[np.ndarray[Any, Any]], rank: int) -> RaggedTensor:
    """Returns arrays as one ragged tensor; `rank` axes of each after the first may differ."""
    lengths = [[v.shape[axis] for v in values for _ in range(math.prod(v.shape[:axis]))] for axis in range(rank + 1)]
    flat = [v.reshape(math.prod(v.shape[: rank + 1]), *v.shape[rank + 1 :]) for v in values]
    return RaggedTensor.from_nested_row_lengths(np.concatenate(flat), lengths)


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
