"""TensorFlow's shapes, which are tuples that know its methods, and its specs of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex, overload

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.data.internal import TensorSpec as _TensorSpec
from lockstep.errors import ArgumentError

__all__ = ["TensorShape", "TensorSpec"]


class TensorShape(tuple[Any, ...]):
    """The size of each dimension; `None` where it is not known.

    A tuple, so it can be given wherever numpy, JAX or Keras take a shape. Unlike TensorFlow's, its number of
    dimensions is always known.

    Source: tf.TensorShape.
    """

    __slots__ = ()

    # A tuple, not TensorFlow's class: numpy, JAX and Keras take it as a shape.
    def __new__(cls, dims: Iterable[Any] | int | None) -> TensorShape:
        """Makes a shape.

        Args:
            dims: One size per dimension, `None` for an unknown one; or an integer for a single dimension.

        Raises:
            ArgumentError: If `dims` is `None`: a tensor of unknown rank has no counterpart here.
        """
        if dims is None:
            raise ArgumentError("A shape must have a known number of dimensions. Received: None. Example: [None, 28]")
        sizes = [dims] if isinstance(dims, int) else dims
        return super().__new__(cls, [None if d is None else int(d) for d in sizes])

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self)

    @property
    def ndims(self) -> int:
        """Number of dimensions."""
        return len(self)

    @property
    def dims(self) -> list[Any]:
        """The sizes."""
        return list(self)

    def as_list(self) -> list[Any]:
        """Returns the sizes as a list."""
        return list(self)

    def is_fully_defined(self) -> bool:
        """Returns whether every size is known."""
        return None not in self

    def num_elements(self) -> int | None:
        """Returns the number of elements, `None` if a size is unknown."""
        if not self.is_fully_defined():
            return None
        product = 1
        for size in self:
            product *= size
        return product

    def is_compatible_with(self, other: ShapeLike) -> bool:
        """Returns whether a tensor could have both shapes."""
        other = TensorShape(other)
        return len(self) == len(other) and all(
            a is None or b is None or a == b for a, b in zip(self, other, strict=True)
        )

    def assert_is_compatible_with(self, other: ShapeLike) -> None:
        """Raises `ArgumentError` if no tensor could have both shapes."""
        if not self.is_compatible_with(other):
            raise ArgumentError(f"Shapes must be compatible. Received: {self} and {TensorShape(other)}.")

    def concatenate(self, other: ShapeLike) -> TensorShape:
        """Returns the sizes of this shape followed by those of `other`."""
        return TensorShape((*self, *TensorShape(other)))

    def with_rank(self, rank: int) -> TensorShape:
        """Returns the shape; raises `ArgumentError` unless it has `rank` dimensions."""
        if len(self) != rank:
            raise ArgumentError(f"The shape must have {rank} dimensions. Received: {self}.")
        return self

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> TensorShape: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        # A slice of a shape is a shape; a single size is a number, as in TensorFlow 2.
        sizes = super().__getitem__(key)
        return TensorShape(sizes) if isinstance(key, slice) else sizes

    def __eq__(self, other: object) -> bool:
        # A list of sizes equals the shape, too, as programs compare them.
        return tuple(self) == tuple(other) if isinstance(other, (tuple, list)) else NotImplemented  # pyright: ignore[reportUnknownArgumentType]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __add__(self, other: ShapeLike) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: ShapeLike) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __repr__(self) -> str:
        return f"TensorShape({list(self)})"

    def __str__(self) -> str:
        return f"({', '.join(map(str, self))}{',' if len(self) == 1 else ''})"


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
