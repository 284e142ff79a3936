"""Leaves of elements as programs see them: tensors, and numpy's arrays; rows of ragged tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep.compat.tensorflow._composite import CompositeTensor
from lockstep.compat.tensorflow._tensor import as_host, as_tensor

__all__ = ["RaggedRow", "as_numpy", "as_value"]


class RaggedRow:
    """A row of a ragged tensor: an array to a program, and one of rows of different lengths to `batch`.

    Attributes:
        array: The row, of any number of axes.
        spec: The `tf.RaggedTensorSpec` of all rows, with `ragged_rank` 0.
    """

    def __init__(self, array: np.ndarray[Any, Any], spec: Any) -> None:
        self.array = array
        self.spec = spec


def as_value(leaf: Any) -> Any:
    """Returns a leaf of an element as a program sees it: a tensor."""
    return as_host(leaf.array) if type(leaf) is RaggedRow else as_tensor(leaf)


def as_numpy(leaf: Any) -> Any:
    """Returns a leaf of an element as `as_numpy_iterator` gives it: an array, also of a ragged or a sparse tensor."""
    if type(leaf) is RaggedRow:
        return leaf.array
    return _as_array(leaf) if isinstance(leaf, CompositeTensor) else leaf


def _as_array(tensor: Any) -> Any:
    if not hasattr(tensor, "indices"):
        return tensor.numpy()
    # A sparse one with its zeros, as TensorFlow gives it.
    dtype = tensor.dtype.dtype
    dense = np.full(tuple(tensor.shape), b"" if dtype.kind == "O" else 0, dtype)
    dense[tuple(np.asarray(tensor.indices).T)] = np.asarray(tensor.values)
    return dense
