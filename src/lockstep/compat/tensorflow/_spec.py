"""TensorSpec, of lockstep.data, that takes the types and shapes of this package."""

from __future__ import annotations

from typing import Any

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.data.internal import TensorSpec as _TensorSpec

__all__ = ["TensorSpec", "type_spec_from_value"]


class TensorSpec(_TensorSpec):
    """The shape and type of a tensor. Source: tf.TensorSpec."""

    def __init__(self, shape: ShapeLike, dtype: DTypeLike = float32, name: str | None = None) -> None:
        """Creates a spec of sizes (`None` where they differ), a type, and a name for messages."""
        super().__init__(shape, as_dtype(dtype).dtype, name)
        if shape is not None:
            # The base class is frozen; it keeps a plain tuple.
            object.__setattr__(self, "shape", TensorShape(shape))

    @classmethod
    def from_tensor(cls, tensor: Tensor, name: str | None = None) -> TensorSpec:
        """Returns the spec of a tensor."""
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """Returns a copy of another spec."""
        return cls(spec.shape, spec.dtype, name)


def type_spec_from_value(value: Tensor) -> TensorSpec:
    """Returns the spec of a tensor. Source: tf.type_spec_from_value."""
    from lockstep.compat.tensorflow._ops.create import convert_to_tensor

    return TensorSpec.from_tensor(convert_to_tensor(value))
