"""Columns of numbers, and of numbers in buckets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.errors import ArgumentError
from lockstep.feature_column import _kinds
from lockstep.feature_column._columns import CategoricalColumn, DenseColumn, Ids, Weights
from lockstep.feature_column._features import Features


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """What `numeric_column` returns; see there."""

    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: np.dtype[Any]
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        from lockstep.data._example.features import FixedLenFeature

        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return self.shape

    def dense(self, features: Features, weights: Weights) -> jax.Array:
        return self.numbers(features)

    def numbers(self, features: Features) -> jax.Array:
        """Returns the feature, normalised: float32 (batch, *shape)."""
        return features.once(self, lambda: self._normalised(features.numbers(self.key)))

    def _normalised(self, values: jax.Array) -> jax.Array:
        found = values if self.normalizer_fn is None else jnp.asarray(self.normalizer_fn(values))
        if found.size != found.shape[0] * self.width:
            raise ArgumentError(
                f"numeric_column({self.key!r}, shape={self.shape}) takes {self.width} numbers for each example. "
                f"Received: a feature of shape {values.shape}. Give the column that shape, or reshape the feature."
            )
        return found.astype(jnp.float32).reshape(-1, *self.shape)


def numeric_column(
    key: str,
    shape: int | Sequence[int] = (1,),
    default_value: Any = None,
    dtype: Any = np.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """Describes a feature of numbers.

    Args:
        key: Its name.
        shape: Of an example's numbers.
        default_value: What `make_parse_example_spec` says for examples without the feature: a number, or numbers of
            `shape`.
        dtype: In which examples hold it. The model sees float32.
        normalizer_fn: Applied to the feature, (batch, *shape).

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.feature_column.numeric_column.
    """
    key, sizes, found = _kinds.checked_key(key), _checked_shape(shape, key), _kinds.as_dtype(dtype, key)
    if not _kinds.is_number(found):
        raise ArgumentError(f"dtype of a numeric column is one of numbers. Received for {key!r}: {found.name}.")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise ArgumentError(f"normalizer_fn must be a function. Received for {key!r}: {normalizer_fn!r}.")
    return NumericColumn(key, sizes, _checked_default(default_value, sizes, found, key), found, normalizer_fn)


def _checked_shape(shape: Any, key: str) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if not all(isinstance(size, (int, np.integer)) and size >= 1 for size in sizes):
        raise ArgumentError(f"shape holds integers from 1 up. Received for {key!r}: {shape!r}.")
    return tuple(int(size) for size in sizes)


def _checked_default(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], key: str) -> Any:
    if value is None:
        return None
    given = np.asarray(value)
    fits = given.dtype.kind in ("iu" if _kinds.is_integer(dtype) else "iuf")
    if not fits or given.shape not in ((), shape):
        raise ArgumentError(
            f"default_value is a number, or numbers of the column's shape and type. Received for {key!r}, of shape "
            f"{shape} and type {dtype.name}: {value!r}."
        )
    return _nested(np.broadcast_to(given.astype(dtype), shape).tolist())


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """What `bucketized_column` returns; see there."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.source_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (*self.source_column.shape, self._per_number)

    @property
    def num_buckets(self) -> int:
        return self._per_number * self.source_column.width

    @property
    def _per_number(self) -> int:
        return len(self.boundaries) + 1

    def dense(self, features: Features, weights: Weights) -> jax.Array:
        return jax.nn.one_hot(self._buckets(features), self._per_number, dtype=jnp.float32)

    def ids(self, features: Features) -> Ids:
        buckets = self._buckets(features)
        offsets = jnp.arange(self.source_column.width, dtype=jnp.int32) * self._per_number
        return Ids(buckets.reshape(-1, self.source_column.width) + offsets)

    def _buckets(self, features: Features) -> jax.Array:
        """How many boundaries each number has reached: int32 (batch, *shape)."""
        edges = np.asarray(self.boundaries, np.float32)
        numbers = self.source_column.numbers(features)
        return features.once(self, lambda: jnp.sum(numbers[..., None] >= edges, axis=-1, dtype=jnp.int32))


def bucketized_column(source_column: Any, boundaries: Sequence[float]) -> BucketizedColumn:
    """Describes in which of some ranges a number is: (-inf, b0), [b0, b1), ..., [bn, inf).

    It gives categories, or as a column of numbers one of 1 and 0 for each range.

    Args:
        source_column: From `numeric_column`, of one dimension.
        boundaries: Ascending.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.feature_column.bucketized_column.
    """
    if not isinstance(source_column, NumericColumn) or len(source_column.shape) > 1:
        raise ArgumentError(
            f"source_column is a numeric_column of one dimension. Received: {source_column!r}. Example: "
            "bucketized_column(numeric_column('age'), [18, 65])."
        )
    edges = tuple(boundaries) if isinstance(boundaries, (list, tuple)) else ()
    if not edges or any(one >= other for one, other in itertools.pairwise(edges)):
        raise ArgumentError(f"boundaries is a list of ascending numbers. Received: {boundaries!r}.")
    return BucketizedColumn(source_column, edges)
