"""Numeric columns, and bucketized ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import ArrayLike, DType, PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _features
from lockstep.estimator.feature_column._columns import CategoricalColumn, DenseColumn, Ids, VariableProvider
from lockstep.estimator.feature_column._features import Features


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """Column of `numeric_column`."""

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
        # Imported late: columns work without the input pipeline.
        from lockstep.data.internal import FixedLenFeature

        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return self.shape

    def dense(self, features: Features, weights: VariableProvider) -> jax.Array:
        return self.numbers(features)

    def numbers(self, features: Features) -> jax.Array:
        """Returns the normalized feature: float32 (batch, *shape)."""
        return features.cached(self, lambda: self._normalize(features.numbers(self.key)))

    def _normalize(self, values: jax.Array) -> jax.Array:
        # On the feature as it is: TensorFlow casts to float32 after the function, too, so integers may be divided.
        numbers = values if self.normalizer_fn is None else jnp.asarray(self.normalizer_fn(values))
        # By number of elements rather than shape: TensorFlow reshapes, so that (batch,) fits a column of shape (1,).
        if numbers.size != numbers.shape[0] * self.width:
            raise ArgumentError(
                f"numeric_column({self.key!r}, shape={self.shape}) takes {self.width} numbers for each example. "
                f"Received: a feature of shape {values.shape}. Give the column that shape, or reshape the feature."
            )
        return numbers.astype(jnp.float32).reshape(-1, *self.shape)


def numeric_column(
    key: str,
    shape: int | Sequence[int] = (1,),
    default_value: ArrayLike | None = None,
    dtype: DType = np.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """Describes a feature of numbers.

    Args:
        key: The feature's name.
        shape: The shape of an example's numbers.
        default_value: The numbers of examples without the feature, for `make_parse_example_spec`: one, or an array of
            `shape`.
        dtype: The dtype of stored examples. The model gets float32.
        normalizer_fn: A function applied to the feature, (batch, *shape).

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.numeric_column.
    """
    key, numpy_dtype = _features.check_key(key), _features.to_dtype(dtype, key)
    sizes = _check_shape(shape, key)
    if not _features.is_number(numpy_dtype):
        raise ArgumentError(f"dtype of a numeric column is one of numbers. Received for {key!r}: {numpy_dtype.name}.")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise ArgumentError(f"normalizer_fn must be a function. Received for {key!r}: {normalizer_fn!r}.")
    default = default_value
    if default_value is not None:
        array = np.asarray(default_value)
        # TensorFlow's rule: an integer column takes no default of floats, which it would truncate.
        fits = array.dtype.kind in ("iu" if _features.is_integer(numpy_dtype) else "iuf")
        if not fits or array.shape not in ((), sizes):
            raise ArgumentError(
                f"default_value is a number, or numbers of the column's shape and type. Received for {key!r}, of shape "
                f"{sizes} and type {numpy_dtype.name}: {default_value!r}."
            )
        # Tuples: columns are hashed and compared.
        default = _to_tuples(np.broadcast_to(array.astype(numpy_dtype), sizes).tolist())
    return NumericColumn(key, sizes, default, numpy_dtype, normalizer_fn)


def _check_shape(shape: Any, key: str) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if not all(isinstance(size, (int, np.integer)) and size >= 1 for size in sizes):
        raise ArgumentError(f"shape holds integers from 1 up. Received for {key!r}: {shape!r}.")
    return tuple(int(size) for size in sizes)


def _to_tuples(value: PyTree) -> PyTree:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """Column of `bucketized_column`."""

    # Both kinds, as in TensorFlow: one-hot in a dense layer, categories in a linear model or a cross.

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

    def dense(self, features: Features, weights: VariableProvider) -> jax.Array:
        return jax.nn.one_hot(self._buckets(features), self._per_number, dtype=jnp.float32)

    def ids(self, features: Features) -> Ids:
        buckets = self._buckets(features)
        # Each number of a column has buckets of its own, so that a linear model has a weight for each.
        offsets = jnp.arange(self.source_column.width, dtype=jnp.int32) * self._per_number
        return Ids(buckets.reshape(-1, self.source_column.width) + offsets)

    def _buckets(self, features: Features) -> jax.Array:
        """Counts the boundaries that each number has reached: int32 (batch, *shape)."""
        # All are compared: boundaries are few, and a search would branch on the device. float32, as the numbers are.
        edges = np.asarray(self.boundaries, np.float32)
        numbers = self.source_column.numbers(features)
        return features.cached(self, lambda: jnp.sum(numbers[..., None] >= edges, axis=-1, dtype=jnp.int32))


def bucketized_column(source_column: object, boundaries: Sequence[float]) -> BucketizedColumn:
    """Describes the bucket of a number: (-inf, b0), [b0, b1), ..., [bn, inf).

    The column is categorical; as a dense column it is one-hot.

    Args:
        source_column: A column of `numeric_column`, of one dimension.
        boundaries: Ascending numbers.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.bucketized_column.
    """
    if not isinstance(source_column, NumericColumn) or len(source_column.shape) > 1:
        raise ArgumentError(
            f"source_column is a numeric_column of one dimension. Received: {source_column!r}. Example: "
            "bucketized_column(numeric_column('age'), [18, 65])."
        )
    edges = tuple(boundaries) if isinstance(boundaries, (list, tuple)) else ()
    # Strictly, as TensorFlow demands: nothing falls into a bucket between two equal boundaries.
    if not edges or any(one >= other for one, other in itertools.pairwise(edges)):
        raise ArgumentError(f"boundaries is a list of ascending numbers. Received: {boundaries!r}.")
    return BucketizedColumn(source_column, edges)
