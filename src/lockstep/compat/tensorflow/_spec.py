"""TensorFlow's specs of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep._nest import map_structure
from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.data import DatasetSpec
from lockstep.data.internal import TensorSpec as _TensorSpec
from lockstep.errors import ArgumentError

__all__ = ["TensorShape", "TensorSpec", "TypeSpec", "as_spec"]


class _SpecType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        # Specs of lockstep.data are none of this package's classes, and describe values all the same.
        return super().__instancecheck__(instance) or (cls is TypeSpec and isinstance(instance, _TensorSpec))


class TypeSpec(metaclass=_SpecType):
    """Class of all specs, for `isinstance(x, tf.TypeSpec)`. Source: tf.TypeSpec."""


class TensorSpec(_TensorSpec):
    """The shape and type of a tensor, `shape` a `TensorShape` and `dtype` a `DType`.

    Specs are equal whose shapes, types and names are.

    Source: tf.TensorSpec.
    """

    shape: TensorShape  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, shape: ShapeLike, dtype: DTypeLike = float32, name: str | None = None) -> None:
        """Creates a spec of sizes (`None` where they differ, or for all of them), a type, and a name."""
        sizes, wanted = TensorShape(shape), as_dtype(dtype)
        super().__init__(None if sizes.rank is None else sizes, wanted.dtype, name)
        # The base class is frozen, and keeps a plain tuple and numpy's type.
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "dtype", wanted)

    @classmethod
    def from_tensor(cls, tensor: Tensor, name: str | None = None) -> TensorSpec:
        """Returns the spec of a tensor."""
        # A tensor of a model_fn or of Keras may have a name; arrays have none.
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """Returns a copy of another spec."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    @property
    def value_type(self) -> Any:
        """The class of the values: `tf.Tensor`."""
        from lockstep.compat.tensorflow._tensor import Tensor

        return Tensor

    def is_compatible_with(self, spec_or_value: Any) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns whether a tensor, or every tensor of another spec, can have this shape and has this type."""
        other = as_spec(spec_or_value)
        if not isinstance(other, _TensorSpec):
            try:
                array = spec_or_value if hasattr(spec_or_value, "dtype") else np.asarray(spec_or_value)
                other = TensorSpec(array.shape, array.dtype)
            except (TypeError, ValueError):
                return False
        return self.dtype == other.dtype and TensorShape(self.shape).is_compatible_with(other.shape)

    def is_subtype_of(self, other: Any) -> bool:
        """Returns whether every tensor of this spec has the other one, too."""
        other = as_spec(other)
        if not isinstance(other, TensorSpec):
            return False
        return self.dtype == other.dtype and self.shape.is_subtype_of(other.shape) and other.name in (None, self.name)

    def most_specific_common_supertype(self, others: Any, _: object = None) -> TensorSpec | None:
        """Returns the narrowest spec that holds for this one and all of `others`, `None` if there is none."""
        result = self
        for other in map(as_spec, others):
            if not isinstance(other, TensorSpec) or (other.dtype, other.name) != (self.dtype, self.name):
                return None
            result = TensorSpec(result.shape.most_specific_compatible_shape(other.shape), self.dtype, self.name)
        return result

    def most_specific_compatible_type(self, other: Any) -> TensorSpec:
        """Returns the narrowest spec that both have.

        Raises:
            ArgumentError: If their types or names differ.
        """
        common = self.most_specific_common_supertype([other])
        if common is None:
            raise ArgumentError(f"Specs must be of one type and name. Received: {self} and {other}.")
        return common

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _TensorSpec):
            return NotImplemented
        return self.shape == TensorShape(other.shape) and self.dtype == other.dtype and self.name == other.name

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shape, self.dtype, self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"


def as_spec(spec: Any) -> Any:
    """Returns a spec of `lockstep.data` as one of this package; others pass."""
    if isinstance(spec, _TensorSpec) and not isinstance(spec, TensorSpec):
        return TensorSpec(spec.shape, spec.dtype, spec.name)
    return DatasetSpec(as_specs(spec.element_spec)) if type(spec) is DatasetSpec else spec


def as_specs(structure: PyTree) -> Any:
    """Returns a structure of specs as those of this package."""
    return map_structure(as_spec, structure)
