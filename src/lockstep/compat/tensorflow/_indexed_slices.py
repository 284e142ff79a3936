"""tf.IndexedSlices: some rows of a tensor, and which they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow import _composite
from lockstep.compat.tensorflow._composite import CompositeTensor
from lockstep.compat.tensorflow._dtypes import as_dtype, dtype_of
from lockstep.compat.tensorflow._ops import create, segments
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._spec import TypeSpec
from lockstep.compat.tensorflow._tensor import as_host, constant_array
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.distribute.internal import Rows
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["IndexedSlices", "IndexedSlicesSpec"]


class IndexedSlices(CompositeTensor, Rows):
    """Rows of a tensor, whose other rows are zero; rows of one index are added up.

    Gradients are dense here: programs make and convert these themselves.

    Source: tf.IndexedSlices.
    """

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor = None) -> None:
        """Creates it of rows (n, ...), their indices (n,), and the shape of the whole if it is known."""
        self.values = create.convert_to_tensor(values)
        self.indices = create.convert_to_tensor(indices)
        self.dense_shape = None if dense_shape is None else as_host(np.asarray(constant_array(dense_shape)))

    @property
    def dtype(self) -> Any:
        """The type of the rows."""
        return dtype_of(self.values.dtype)

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole."""
        return TensorShape(None) if self.dense_shape is None else TensorShape(self.dense_shape.tolist())

    @property
    def spec(self) -> IndexedSlicesSpec:
        """The spec of the rows."""
        return IndexedSlicesSpec(self.shape, self.dtype)

    def added_up(self, gather: Callable[[Any], Any], divisor: int) -> IndexedSlices:
        """Returns the rows of all replicas, divided by a number."""
        values = gather(self.values)
        return _of_parts(self.dense_shape, (values if divisor == 1 else values / divisor, gather(self.indices)))

    def consumers(self) -> list[Any]:
        """Returns an empty list: there is no graph."""
        return []

    def to_tensor(self) -> Any:
        """Returns the whole.

        Raises:
            ArgumentError: If its shape is not known.
        """
        if self.dense_shape is None:
            raise ArgumentError("IndexedSlices are made whole if their shape is known. Give dense_shape=.")
        return segments.unsorted_segment_sum(self.values, self.indices, int(self.dense_shape.tolist()[0]))

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self.values, self.indices, self.dense_shape)

    def __repr__(self) -> str:
        shape = "" if self.dense_shape is None else f", dense_shape={self.dense_shape}"
        return f"IndexedSlices(indices={self.indices}, values={self.values}{shape})"


def _of_parts(shape: Any, parts: Iterable[Any]) -> IndexedSlices:
    """Returns slices of parts that JAX hands on, which need not be arrays."""
    made = object.__new__(IndexedSlices)
    made.values, made.indices = parts
    made.dense_shape = None if shape is None else as_host(np.asarray(shape))
    return made


def _parts_of(slices: IndexedSlices) -> tuple[tuple[Any, Any], Any]:
    shape = slices.dense_shape
    return (slices.values, slices.indices), None if shape is None else tuple(shape.tolist())


# So that programs take and return them; the shape of the whole is a part of the program.
jax.tree_util.register_pytree_node(IndexedSlices, _parts_of, _of_parts)


class IndexedSlicesSpec(TypeSpec):
    """The shape and type of IndexedSlices. Source: tf.IndexedSlicesSpec."""

    def __init__(self, shape: ShapeLike = None, dtype: DTypeLike = "float32", *_: object) -> None:
        """Creates a spec."""
        self.shape, self.dtype = TensorShape(shape), as_dtype(dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexedSlicesSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"IndexedSlicesSpec(shape={self.shape}, dtype={self.dtype!r})"


def _whole(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_whole(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value.to_tensor() if isinstance(value, IndexedSlices) else value


def _compute(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Computes a function of this package for rows: `convert_to_tensor` makes the whole."""
    if name == "type_spec_from_value":
        return args[0].spec
    if name in ("convert_to_tensor", "identity", "cast", "stack", "add_n"):
        args = tuple(
            [v.to_tensor() if isinstance(v, IndexedSlices) else v for v in a] if isinstance(a, list) else a
            for a in args
        )
        return function(*(a.to_tensor() if isinstance(a, IndexedSlices) else a for a in args), **kwargs)
    raise UnsupportedError(f"tf.{name} computes with whole tensors. Call tf.convert_to_tensor of the slices before.")


_composite.handlers[IndexedSlices] = _compute
