"""TensorFlow's shapes: tuples that know its methods, so that JAX, numpy and Keras take them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any, NoReturn, SupportsIndex

from lockstep.compat.tensorflow._error_kinds import ArgumentTypeError
from lockstep.compat.tensorflow._types import ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["Dimension", "TensorShape", "dimension_at_index", "dimension_value"]


class TensorShape(tuple[Any, ...]):
    """The size of each dimension; `None` where it is not known.

    A tuple, so that it can be given wherever numpy, JAX or Keras take a shape; it equals a list of the same sizes.
    `TensorShape(None)` is the shape of which not even the number of dimensions is known: its `rank` is `None`, and
    asking for its sizes raises `ValueError`.

    Source: tf.TensorShape.
    """

    __slots__ = ()

    def __new__(cls, dims: ShapeLike) -> TensorShape:
        """Makes a shape.

        Args:
            dims: One size per dimension, `None` for an unknown one; an integer for a single dimension; `None` for a
                shape of unknown rank.

        Raises:
            ArgumentError: If a size is negative.
            ArgumentTypeError: If a size is no integer.
        """
        # A shape of unknown rank is of a class of its own: a tuple has no room for an attribute beside its items.
        if dims is None or isinstance(dims, _UnknownShape):
            return tuple.__new__(_UnknownShape, ())
        if isinstance(dims, TensorShape):
            return dims
        sizes = dims if isinstance(dims, (tuple, list)) else _sizes_of(dims)
        return tuple.__new__(TensorShape, [_size_of(d) for d in sizes])

    @property
    def rank(self) -> int | None:
        """Number of dimensions, `None` if it is unknown."""
        return len(self)

    @property
    def ndims(self) -> int | None:
        """Number of dimensions, `None` if it is unknown."""
        return self.rank

    @property
    def dims(self) -> list[Any] | None:
        """The sizes as `Dimension`s, `None` if even their number is unknown."""
        return None if self.rank is None else [as_dimension(d) for d in self]

    def as_list(self) -> list[Any]:
        """Returns the sizes as a list; raises `ValueError` for a shape of unknown rank."""
        return list(self)

    def is_fully_defined(self) -> bool:
        """Returns whether every size is known."""
        return None not in self

    def assert_is_fully_defined(self) -> None:
        """Raises `ArgumentError` if a size is unknown."""
        if not self.is_fully_defined():
            raise ArgumentError(f"Every size of the shape must be known. Received: {self}.")

    def num_elements(self) -> int | None:
        """Returns the number of elements, `None` if a size is unknown."""
        return math.prod(self) if self.is_fully_defined() else None

    def is_compatible_with(self, other: ShapeLike) -> bool:
        """Returns whether a tensor could have both shapes."""
        other = TensorShape(other)
        if self.rank is None or other.rank is None:
            return True
        return len(self) == len(other) and all(
            a is None or b is None or a == b for a, b in zip(self, other, strict=True)
        )

    def assert_is_compatible_with(self, other: ShapeLike) -> None:
        """Raises `ArgumentError` if no tensor could have both shapes."""
        if not self.is_compatible_with(other):
            raise ArgumentError(f"Shapes must be compatible. Received: {self} and {TensorShape(other)}.")

    def is_subtype_of(self, other: ShapeLike) -> bool:
        """Returns whether every tensor of this shape has the other one, too."""
        other = TensorShape(other)
        if other.rank is None or self.rank is None:
            return other.rank is None
        return len(self) == len(other) and all(b is None or a == b for a, b in zip(self, other, strict=True))

    def most_specific_common_supertype(self, others: Any) -> TensorShape | None:
        """Returns the narrowest shape that holds for this one and all of `others`."""
        result = self
        for other in others:
            result = result.most_specific_compatible_shape(other)
        return result

    def most_specific_compatible_shape(self, other: ShapeLike) -> TensorShape:
        """Returns the narrowest shape that both have: sizes that differ are unknown in it."""
        other = TensorShape(other)
        if self.rank is None or other.rank is None or len(self) != len(other):
            return TensorShape(None)
        return TensorShape([a if a == b else None for a, b in zip(self, other, strict=True)])

    def merge_with(self, other: ShapeLike) -> TensorShape:
        """Returns what both shapes know together; raises `ArgumentError` if they contradict each other."""
        other = TensorShape(other)
        self.assert_is_compatible_with(other)
        if self.rank is None or other.rank is None:
            return other if self.rank is None else self
        return TensorShape([b if a is None else a for a, b in zip(self, other, strict=True)])

    def concatenate(self, other: ShapeLike) -> TensorShape:
        """Returns the sizes of this shape followed by those of `other`."""
        other = TensorShape(other)
        return TensorShape(None if other.rank is None else (*self, *other))

    def with_rank(self, rank: int) -> TensorShape:
        """Returns the shape; raises `ArgumentError` unless it can have `rank` dimensions."""
        self.assert_has_rank(rank)
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Returns the shape; raises `ArgumentError` if it has fewer than `rank` dimensions."""
        if self.rank is not None and self.rank < rank:
            raise ArgumentError(f"The shape must have at least {rank} dimensions. Received: {self}.")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Returns the shape; raises `ArgumentError` if it has more than `rank` dimensions."""
        if self.rank is not None and self.rank > rank:
            raise ArgumentError(f"The shape must have at most {rank} dimensions. Received: {self}.")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raises `ArgumentError` unless the shape can have `rank` dimensions."""
        if self.rank not in (None, rank):
            raise ArgumentError(f"The shape must have {rank} dimensions. Received: {self}.")

    def assert_same_rank(self, other: ShapeLike) -> None:
        """Raises `ArgumentError` if the two shapes have another number of dimensions."""
        other = TensorShape(other)
        if self.rank is not None and other.rank is not None and self.rank != other.rank:
            raise ArgumentError(f"Shapes must have the same number of dimensions. Received: {self} and {other}.")

    def __getitem__(self, key: SupportsIndex | slice) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # A slice of a shape is a shape; a single size is a number, as in TensorFlow 2.
        sizes = super().__getitem__(key)
        return TensorShape(sizes) if isinstance(key, slice) else sizes

    def __eq__(self, other: object) -> bool:
        # A list of sizes equals the shape, too, as programs compare them.
        if isinstance(other, _UnknownShape) or other is None:
            return False
        if isinstance(other, int):
            return tuple(self) == (other,)
        return tuple(self) == tuple(other) if isinstance(other, (tuple, list)) else NotImplemented  # pyright: ignore[reportUnknownArgumentType]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __add__(self, other: ShapeLike) -> TensorShape:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.concatenate(other)

    def __radd__(self, other: ShapeLike) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorShape, (None if self.rank is None else tuple(self),)

    def __repr__(self) -> str:
        return f"TensorShape({list(self)})"

    def __str__(self) -> str:
        return f"({', '.join(map(str, self))}{',' if len(self) == 1 else ''})"


class _UnknownShape(TensorShape):
    """The shape of a tensor of which not even the number of dimensions is known."""

    __slots__ = ()

    @property
    def rank(self) -> None:
        return None

    def as_list(self) -> NoReturn:
        _refuse("as_list()")

    def is_fully_defined(self) -> bool:
        return False

    def concatenate(self, other: ShapeLike) -> TensorShape:
        return self

    def __len__(self) -> NoReturn:
        _refuse("len()")

    def __iter__(self) -> Iterator[Any]:
        _refuse("Iteration")

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        if not isinstance(key, slice):
            return None
        # As many unknown sizes as the slice says, if its ends say it.
        start, stop = key.start or 0, key.stop
        if key.step not in (None, 1) or stop is None or start < 0 or stop < 0:
            return self
        return TensorShape([None] * max(stop - start, 0))

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, _UnknownShape)

    def __hash__(self) -> int:
        return hash(None)

    def __repr__(self) -> str:
        return "TensorShape(None)"

    def __str__(self) -> str:
        return "<unknown>"


def _refuse(what: str) -> NoReturn:
    raise ArgumentError(f"{what} needs a shape with a known number of dimensions. Received: TensorShape(None).")


def _sizes_of(dims: ShapeLike) -> Any:
    if isinstance(dims, (int, Dimension)) or (hasattr(dims, "__index__") and not getattr(dims, "ndim", 0)):
        return [dims]
    try:
        # Arrays and tensors of sizes.
        return dims.tolist() if hasattr(dims, "tolist") else list(dims)
    except TypeError:
        raise ArgumentTypeError(f"A shape must be a list of sizes, a size, or None. Received: {dims!r}.") from None


def _size_of(dim: Any) -> int | None:
    dim = dim.value if isinstance(dim, (Dimension, _UnknownDimension)) else dim
    if dim is None:
        return None
    try:
        size = operator.index(dim)
    except TypeError:
        raise ArgumentTypeError(f"A size must be an integer or None. Received: {dim!r}.") from None
    if size < 0:
        raise ArgumentError(f"A size must not be negative. Received: {size}. An unknown size is None.")
    return size


class Dimension(int):
    """A known size that has a `value`, as TensorFlow 1 has it; it is an integer. Source: tf.compat.v1.Dimension."""

    def __new__(cls, value: Any) -> Any:
        """Makes a size; of `None` an unknown one, whose `value` is `None`."""
        size = _size_of(value)
        return _UnknownDimension() if size is None else int.__new__(cls, size)

    @property
    def value(self) -> int:
        """The size as a plain integer."""
        return int(self)

    def is_compatible_with(self, other: Any) -> bool:
        """Returns whether both can be of one size."""
        return _size_of(other) in (None, int(self))

    def merge_with(self, other: Any) -> Any:
        """Returns this size; raises `ArgumentError` if the other one contradicts it."""
        if not self.is_compatible_with(other):
            raise ArgumentError(f"Sizes must be compatible. Received: {self} and {other}.")
        return self

    def __repr__(self) -> str:
        return f"Dimension({int(self)})"

    def __str__(self) -> str:
        return str(int(self))


class _UnknownDimension:
    """A size that is not known."""

    value = None

    def is_compatible_with(self, other: Any) -> bool:
        """Returns true: an unknown size can be any."""
        return True

    def merge_with(self, other: Any) -> Any:
        """Returns the other size."""
        return as_dimension(other)

    # TensorFlow answers None: whether two unknown sizes are equal is unknown.
    def __eq__(self, other: object) -> Any:
        return None

    def __ne__(self, other: object) -> Any:
        return None

    def __hash__(self) -> int:
        return hash(None)

    def __repr__(self) -> str:
        return "Dimension(None)"

    def __str__(self) -> str:
        return "?"


def as_dimension(value: Any) -> Any:
    """Returns a size as a `Dimension`, which it may be already."""
    return value if isinstance(value, (Dimension, _UnknownDimension)) else Dimension(value)


def dimension_value(dimension: Any) -> int | None:
    """Returns a size as an integer, or `None`. Source: tf.compat.dimension_value."""
    return _size_of(dimension)


def dimension_at_index(shape: ShapeLike, index: int) -> Any:
    """Returns one size of a shape as a `Dimension`. Source: tf.compat.dimension_at_index."""
    return as_dimension(TensorShape(shape)[index])
