"""tf.SparseTensor: the values of a tensor that are not zero, and where each stands."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._composite import CompositeTensor
from lockstep.compat.tensorflow._dtypes import as_dtype, dtype_of
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._spec import TypeSpec
from lockstep.compat.tensorflow._tensor import HostTensor, as_host, constant_array
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["SparseTensor", "SparseTensorSpec"]


class SparseTensor(CompositeTensor):
    """Values, the index of each, and the shape of the whole, on the host.

    JAX compiles for fixed shapes, and the number of values is none: convert it with `tf.sparse.to_dense` before a step,
    in `Dataset.map` for example.

    Attributes:
        indices: int64 (n, rank).
        values: (n,): a tensor of the host or of JAX.
        dense_shape: int64 (rank,).

    Source: tf.SparseTensor.
    """

    def __init__(self, indices: Tensor, values: Tensor, dense_shape: Tensor) -> None:
        """Creates a tensor of indices, values and a shape.

        Raises:
            ArgumentError: If they do not go together.
        """
        shape = np.asarray(constant_array(dense_shape), np.int64).reshape(-1)
        where = np.asarray(constant_array(indices), np.int64)
        self.values = values if isinstance(values, jax.Array) else as_host(constant_array(values))
        # An empty list of indices has no second dimension.
        where = where.reshape(0, len(shape)) if not where.size else where
        if where.ndim != 2 or where.shape[1] != len(shape) or self.values.shape != (len(where),):
            raise ArgumentError(
                "Indices must be (n, rank), values (n,), and dense_shape (rank,). Received shapes "
                f"{where.shape}, {tuple(self.values.shape)} and {shape.shape}."
            )
        self.indices, self.dense_shape = as_host(where), as_host(shape)

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """Returns a SparseTensor of another, or of the values of one."""
        value = sparse_tensor_value
        return value if isinstance(value, cls) else cls(value.indices, value.values, value.dense_shape)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return dtype_of(self.values.dtype)

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole."""
        return TensorShape(np.asarray(self.dense_shape).tolist())

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def spec(self) -> SparseTensorSpec:
        """The spec of the tensor."""
        return SparseTensorSpec(self.shape, self.dtype)

    def get_shape(self) -> TensorShape:
        """Returns the shape of the whole."""
        return self.shape

    def with_values(self, new_values: Tensor) -> SparseTensor:
        """Returns other values at the same places."""
        return SparseTensor(self.indices, new_values, self.dense_shape)

    def numpy(self) -> SparseTensor:
        """Returns the tensor itself, whose parts have `numpy()`."""
        return self

    def consumers(self) -> list[Any]:
        """Returns an empty list: there is no graph."""
        return []

    def __repr__(self) -> str:
        return f"SparseTensor(indices={self.indices!s}, values={self.values!s}, dense_shape={self.dense_shape!s})"


def places_of(tensor: SparseTensor) -> np.ndarray[Any, Any]:
    """Returns the indices as one number each: the position in the whole, row by row."""
    shape = tuple(np.asarray(tensor.dense_shape).tolist())
    index = np.asarray(tensor.indices)
    return np.ravel_multi_index(tuple(index.T), shape) if shape and len(index) else np.zeros(len(index), np.int64)


def check_indices(tensor: SparseTensor) -> None:
    """Raises `ArgumentError` unless indices are inside of the shape, in order, and each there once."""
    index, shape = np.asarray(tensor.indices), np.asarray(tensor.dense_shape)
    outside = (index < 0) | (index >= shape)
    if outside.any():
        raise ArgumentError(
            f"Indices must be inside of the shape {shape.tolist()}. Received: {index[outside.any(axis=1)][0].tolist()}."
        )
    if (np.diff(places_of(tensor)) <= 0).any():
        raise ArgumentError(
            "Indices must be in the order of rows, and each there once. Call tf.sparse.reorder before, or add up what "
            "stands at one place. Received: indices out of order."
        )


def host_part(value: Tensor) -> HostTensor:
    """Returns a value as a tensor of int64 of the host."""
    return as_host(np.asarray(constant_array(value), np.int64))


class SparseTensorSpec(TypeSpec):
    """The shape and type of a SparseTensor. Source: tf.SparseTensorSpec."""

    def __init__(self, shape: ShapeLike = None, dtype: DTypeLike = "float32") -> None:
        """Creates a spec."""
        self.shape, self.dtype = TensorShape(shape), as_dtype(dtype)

    @property
    def rank(self) -> int | None:
        """The number of dimensions."""
        return self.shape.rank

    @property
    def value_type(self) -> Any:
        """The class of the values."""
        return SparseTensor

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Returns whether a SparseTensor, or one of another spec, can have this shape and has this type."""
        other = spec_or_value.spec if isinstance(spec_or_value, SparseTensor) else spec_or_value
        is_sparse = isinstance(other, SparseTensorSpec)
        return is_sparse and self.dtype == other.dtype and self.shape.is_compatible_with(other.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparseTensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"SparseTensorSpec({self.shape!r}, {self.dtype!r})"
