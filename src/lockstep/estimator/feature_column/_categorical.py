"""Categorical columns of one feature, by identity or by hash, and columns weighted by another feature."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import DType
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _features
from lockstep.estimator.feature_column._columns import CategoricalColumn, Ids, missing
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._fingerprints import decimal_fingerprints
from lockstep.estimator.feature_column._host import TextBuckets


class FeatureCategories(CategoricalColumn):
    """Base of categorical columns of one feature, text or integers, which is named as the column is.

    Text becomes categories on the host, ahead of the step, integers on the device.
    """

    key: str
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return variable_length(self.key, self.dtype)

    def ids(self, features: Features) -> Ids:
        is_text = features.is_text(self.key)
        if is_text != (self.dtype == _features.TEXT):
            raise ArgumentError(
                f"A column's dtype says what its feature holds. Received for {self.key!r}: dtype "
                f"{_features.dtype_name(self.dtype)}, and {'text' if is_text else 'numbers'} as the feature. Change "
                "the dtype of the column."
            )
        return features.cached(self, lambda: Ids(self._compute(features)))

    def _compute(self, features: Features) -> jax.Array:
        values = features.integers(self.key)
        ids = self._integer_ids(values)
        # -1 is no value in TensorFlow's dense features; a feature of unsigned integers has none.
        return jnp.where(values == -1, missing(ids.dtype), ids) if jnp.iinfo(values.dtype).min < 0 else ids

    @abstractmethod
    def _integer_ids(self, values: jax.Array) -> jax.Array:
        """Returns the categories of integers; what it returns for -1 is replaced."""


def variable_length(key: str, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Returns the parsing spec of a feature with any number of values."""
    from lockstep.data.internal import VarLenFeature

    return {key: VarLenFeature(dtype)}


def check_bucket_count(name: str, count: object, key: object) -> int:
    """Checks that a number of buckets is an integer from 1 to 2**31 - 1."""
    # The limit of int32, the dtype of categories on devices; TensorFlow has int64.
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or not 1 <= count < 2**31:
        raise ArgumentError(f"{name} must be an integer from 1 to 2**31 - 1. Received for {key!r}: {count!r}.")
    return int(count)


@dataclass(frozen=True)
class IdentityCategoricalColumn(FeatureCategories):
    """Column of `categorical_column_with_identity`."""

    key: str
    number_buckets: int
    default_value: int | None
    # No field: not an argument of TensorFlow's column, either.
    dtype = np.dtype(np.int64)

    @property
    def num_buckets(self) -> int:
        return self.number_buckets

    def _integer_ids(self, values: jax.Array) -> jax.Array:
        # At least 32 bits: an int8 feature has no room for the mark of a missing value beside its numbers.
        ids = values.astype(jnp.promote_types(values.dtype, jnp.int32))
        # Without a default, a number beyond the range stays, and a lookup of it gives NaN.
        if self.default_value is None:
            return ids
        return jnp.where((ids >= 0) & (ids < self.num_buckets), ids, self.default_value)


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityCategoricalColumn:
    """Describes a feature of integers from 0 up to but without `num_buckets`; -1 marks a missing value.

    Args:
        key: The feature's name.
        num_buckets: Number of categories.
        default_value: The category of integers outside of that range. Without one, a negative integer counts as
            missing; one that is too large gives 0 in an indicator_column and NaN in an embedding or a linear model, so
            that training stops (TensorFlow stops with an error, on a CPU).

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.categorical_column_with_identity.
    """
    count = check_bucket_count("num_buckets", num_buckets, _features.check_key(key))
    if default_value is not None and not 0 <= default_value < count:
        raise ArgumentError(
            f"default_value must be one of the categories, 0 to {count - 1}. Received for {key!r}: {default_value!r}."
        )
    return IdentityCategoricalColumn(key, count, default_value)


@dataclass(frozen=True)
class HashedCategoricalColumn(FeatureCategories):
    """Column of `categorical_column_with_hash_bucket`."""

    key: str
    hash_bucket_size: int
    dtype: np.dtype[Any]

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def _compute(self, features: Features) -> jax.Array:
        if self.dtype == _features.TEXT:
            return features.codes(self.key, TextBuckets(self.hash_bucket_size))
        return super()._compute(features)

    def _integer_ids(self, values: jax.Array) -> jax.Array:
        # TensorFlow hashes as_string(values); the text is never made here, its bytes are computed on the device.
        return decimal_fingerprints(values) % self.hash_bucket_size


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: DType = "string"
) -> HashedCategoricalColumn:
    """Describes a hashed feature of text or integers, in TensorFlow's buckets.

    Integers are hashed as decimal text. "" and -1 mark missing values.

    Args:
        key: The feature's name.
        hash_bucket_size: Number of buckets.
        dtype: Text or an integer dtype.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.categorical_column_with_hash_bucket.
    """
    return HashedCategoricalColumn(
        _features.check_key(key),
        check_bucket_count("hash_bucket_size", hash_bucket_size, key),
        _features.to_categorical_dtype(dtype, key),
    )


@dataclass(frozen=True)
class WeightedCategoricalColumn(CategoricalColumn):
    """Column of `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec = dict(self.categorical_column.parse_example_spec)
        if self.weight_feature_key in spec:
            raise ArgumentError(
                f"The weights are a feature of their own. Received for {self.name}: {self.weight_feature_key!r}, which "
                "the column itself needs."
            )
        return spec | variable_length(self.weight_feature_key, self.dtype)

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def ids(self, features: Features) -> Ids:
        return features.cached(self, lambda: self._attach_weights(features))

    def _attach_weights(self, features: Features) -> Ids:
        categories = self.categorical_column.ids(features)
        weights = features.numbers(self.weight_feature_key)
        # One for each, padding included: dense features say nothing else of which weight is whose.
        if weights.shape != categories.ids.shape:
            raise ArgumentError(
                f"There is one weight for each category. Received for {self.name}: weights of shape {weights.shape}, "
                f"categories of shape {categories.ids.shape}."
            )
        return Ids(categories.ids, weights.astype(jnp.float32))


def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: DType = np.float32
) -> WeightedCategoricalColumn:
    """Describes a categorical column whose categories have weights.

    Args:
        categorical_column: The categorical column.
        weight_feature_key: The name of the feature of weights, of the categories' shape.
        dtype: The dtype of the weights.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.weighted_categorical_column.
    """
    key = _features.check_key(weight_feature_key)
    check_categorical("categorical_column", categorical_column)
    if isinstance(categorical_column, WeightedCategoricalColumn):
        raise ArgumentError(
            f"A column has one feature of weights. Received: {categorical_column}, which has one already."
        )
    numpy_dtype = _features.to_dtype(dtype, key)
    if not _features.is_number(numpy_dtype):
        raise ArgumentError(f"Weights are numbers. Received for {key!r}: dtype {_features.dtype_name(numpy_dtype)}.")
    return WeightedCategoricalColumn(categorical_column, key, numpy_dtype)


def check_categorical(name: str, column: object) -> None:
    """Checks that an argument is a categorical column."""
    if not isinstance(column, CategoricalColumn):
        raise ArgumentError(
            f"{name} must be a column of categories, from categorical_column_with_..., bucketized_column, "
            f"crossed_column or weighted_categorical_column. Received: {column!r}."
        )
