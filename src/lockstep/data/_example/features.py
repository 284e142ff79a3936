"""Descriptions of an example's features, and the values of lists of different lengths.

Source: tf.io.FixedLenFeature, VarLenFeature, FixedLenSequenceFeature, RaggedFeature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lockstep._types import ArrayLike, DType
from lockstep.errors import ArgumentError

_Array = np.ndarray[Any, np.dtype[Any]]
TEXT = np.dtype(object)
# The two lists of numbers of example.proto; there are no others.
_NUMBERS = (np.dtype(np.float32), np.dtype(np.int64))
# Lists hold bytes; programs name them in many ways.
_TEXT_NAMES: tuple[Any, ...] = (object, TEXT, bytes, str, "string", "bytes", "str", "object")


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature of a fixed number of values, parsed to an array of a shape.

    Args:
        shape: The shape of an example's value.
        dtype: float32, int64 or text (`bytes`, "string").
        default_value: What stands for a missing feature, broadcast to `shape`; `None` if it must not be missing.

    Raises:
        ArgumentError: If the description is wrong.

    Source: tf.io.FixedLenFeature.
    """

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None

    def __post_init__(self) -> None:
        _set_fields(self, shape=_check_shape(self.shape), dtype=as_dtype(self.dtype))


@dataclass(frozen=True)
class VarLenFeature:
    """A feature of any number of values: of one example an array (n,), of a batch a `SparseValue`.

    Args:
        dtype: float32, int64 or text.

    Source: tf.io.VarLenFeature, which gives a SparseTensor of rank 1 for one example too.
    """

    dtype: Any

    def __post_init__(self) -> None:
        _set_fields(self, dtype=as_dtype(self.dtype))


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature of any number of arrays of a shape: of one example (n, *shape), of a batch padded to the longest.

    Args:
        shape: The shape of one of the arrays.
        dtype: float32, int64 or text.
        allow_missing: Whether a missing feature is one of no arrays; must be true but for sequence examples.
        default_value: What a batch is padded with: a scalar; `None` is 0 or b"".

    Source: tf.io.FixedLenSequenceFeature.
    """

    shape: Sequence[int]
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None

    def __post_init__(self) -> None:
        _set_fields(self, shape=_check_shape(self.shape), dtype=as_dtype(self.dtype))
        if np.ndim(self.default_value) != 0:
            raise ArgumentError(
                f"default_value of a FixedLenSequenceFeature is a scalar; received {self.default_value!r}."
            )


@dataclass(frozen=True)
class RaggedFeature:
    """A feature of any number of values: of one example an array (n,), of a batch a `RaggedValue`.

    Args:
        dtype: float32, int64 or text.
        value_key: Under which name examples hold it; `None` for the name it gets.

    Source: tf.io.RaggedFeature without partitions.
    """

    dtype: Any
    value_key: str | None = None

    def __post_init__(self) -> None:
        _set_fields(self, dtype=as_dtype(self.dtype))


Description = FixedLenFeature | VarLenFeature | FixedLenSequenceFeature | RaggedFeature


class SparseValue(NamedTuple):
    """Rows of different lengths, as a list of values and where each stands; a pytree.

    Attributes:
        indices: int64 (n, 2): row and column of each value.
        values: (n,).
        dense_shape: int64 (2,): the number of rows, the length of the longest.

    Source: tf.SparseTensor.
    """

    indices: _Array
    values: _Array
    dense_shape: _Array

    def to_dense(self, default_value: ArrayLike = None) -> _Array:
        """Returns an array (rows, longest), with `default_value` (`None`: 0 or b"") where there is no value.

        Source: tf.sparse.to_dense.
        """
        dense = np.full(tuple(self.dense_shape), fill_value(self.values.dtype, default_value), self.values.dtype)
        dense[tuple(self.indices.T)] = self.values
        return dense


class RaggedValue(NamedTuple):
    """Rows of different lengths, one after another; a pytree.

    Attributes:
        values: (n,): all rows.
        row_splits: int64 (rows + 1,): where each row begins, and the last one ends.

    Source: tf.RaggedTensor.
    """

    values: _Array
    row_splits: _Array

    def rows(self) -> list[_Array]:
        """Returns each row, (its length,)."""
        return np.split(self.values, self.row_splits[1:-1])

    def to_dense(self, default_value: ArrayLike = None) -> _Array:
        """Returns an array (rows, longest), with `default_value` (`None`: 0 or b"") behind shorter rows.

        Source: tf.RaggedTensor.to_tensor.
        """
        return to_sparse(self.values, np.diff(self.row_splits)).to_dense(default_value)


def to_sparse(values: _Array, lengths: _Array) -> SparseValue:
    """Returns rows of some lengths as a `SparseValue`."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    # The first value of each row, from which columns are counted.
    begins = np.cumsum(lengths) - lengths
    columns = np.arange(len(values)) - np.repeat(begins, lengths)
    longest = int(lengths.max()) if len(lengths) else 0
    return SparseValue(np.stack([rows, columns], axis=1).astype(np.int64), values, np.array([len(lengths), longest]))


def to_ragged(values: _Array, lengths: _Array) -> RaggedValue:
    """Returns rows of some lengths as a `RaggedValue`."""
    return RaggedValue(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def fill_value(dtype: np.dtype[Any], default_value: ArrayLike) -> Any:
    """Returns the value that fills up missing values of a dtype."""
    if default_value is not None:
        return default_value.encode() if isinstance(default_value, str) else default_value
    return b"" if dtype == TEXT else 0


def as_dtype(dtype: DType) -> np.dtype[Any]:
    """Returns float32, int64 or, for text, `object`; takes TensorFlow's dtypes too.

    Raises:
        ArgumentError: If it is another one.
    """
    # TensorFlow's DType has a name, too.
    name = getattr(dtype, "name", dtype)
    if any(dtype is known or name == known for known in _TEXT_NAMES):
        return TEXT
    for known in _NUMBERS:
        if name == known.name or dtype == known.type:
            return known
    raise ArgumentError(
        f"examples hold float32, int64 or text; received the dtype {dtype!r}. Parse as one of them, and convert then."
    )


def _check_shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    try:
        # One size for an array of one dimension, as in TensorFlow.
        sizes = (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"shape is a list of sizes, [] for a scalar; received {shape!r}.") from error
    # -1, an unknown size, is for FixedLenSequenceFeature's first axis alone, which is not named.
    if any(size < 0 for size in sizes):
        raise ArgumentError(f"sizes of a shape are known and not negative; received {shape!r}.")
    return sizes


def _set_fields(instance: object, **fields: Any) -> None:
    # Past the frozen dataclass: descriptions are compared and hashed by their converted fields.
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
