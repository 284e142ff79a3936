"""tf.RaggedTensorSpec: the shape and type of ragged tensors."""

from __future__ import annotations

from typing import Any

from lockstep.compat.tensorflow._composite import spec_classes
from lockstep.compat.tensorflow._dtypes import as_dtype, int64
from lockstep.compat.tensorflow._ragged_tensor import RaggedTensor
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._spec import TypeSpec
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["RaggedTensorSpec"]


class RaggedTensorSpec(TypeSpec):
    """The shape and type of a RaggedTensor. Source: tf.RaggedTensorSpec."""

    def __init__(
        self,
        shape: ShapeLike = None,
        dtype: DTypeLike = "float32",
        ragged_rank: int | None = None,
        row_splits_dtype: DTypeLike = int64,
        flat_values_spec: Any = None,
    ) -> None:
        """Creates a spec; `ragged_rank` is by default one less than the number of dimensions."""
        self.shape, self.dtype = TensorShape(shape), as_dtype(dtype)
        rank = self.shape.rank
        if ragged_rank is None and rank is None:
            raise ArgumentError("ragged_rank must be given where the number of dimensions is not known.")
        self.ragged_rank = ragged_rank if ragged_rank is not None else (rank or 1) - 1
        self.row_splits_dtype, self.flat_values_spec = as_dtype(row_splits_dtype), flat_values_spec

    @classmethod
    def from_value(cls, value: RaggedTensor) -> RaggedTensorSpec:
        """Returns the spec of a RaggedTensor."""
        return cls(value.shape, value.dtype, value.ragged_rank)

    @property
    def value_type(self) -> Any:
        """The class of the values."""
        return RaggedTensor

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Returns whether a RaggedTensor, or one of another spec, can have this shape and has this type."""
        other = spec_or_value
        if isinstance(other, RaggedTensor):
            other = RaggedTensorSpec.from_value(other)
        return (
            isinstance(other, RaggedTensorSpec)
            and (self.dtype, self.ragged_rank) == (other.dtype, other.ragged_rank)
            and self.shape.is_compatible_with(other.shape)
        )

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.ragged_rank, self.row_splits_dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedTensorSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"RaggedTensorSpec({self.shape!r}, {self.dtype!r}, {self.ragged_rank}, {self.row_splits_dtype!r})"


spec_classes[RaggedTensor] = RaggedTensorSpec
