"""Hashed categorical columns: text or integers in buckets by their fingerprints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import DType
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _decimal, _kinds
from lockstep.estimator.feature_column._columns import CategoricalColumn, Ids, missing
from lockstep.estimator.feature_column._features import Features, integer_feature
from lockstep.estimator.feature_column._host import TextBuckets

_MISSING = missing(np.int32)


@dataclass(frozen=True)
class HashedCategoricalColumn(CategoricalColumn):
    """Column of `categorical_column_with_hash_bucket`."""

    key: str
    hash_bucket_size: int
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return variable_length(self.key, self.dtype)

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def ids(self, features: Features) -> Ids:
        check_kind(features, self.key, self.dtype)
        return features.cached(self, lambda: Ids(self._buckets(features)))

    def _buckets(self, features: Features) -> jax.Array:
        if self.dtype == _kinds.TEXT:
            return features.codes(self.key, TextBuckets(self.hash_bucket_size))
        # TensorFlow hashes as_string(values); the text is never made here, its bytes are computed on the device.
        values = integer_feature(features, self.key)
        return jnp.where(is_missing(values), _MISSING, _decimal.fingerprints(values) % self.hash_bucket_size)


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
        _kinds.check_key(key),
        check_bucket_count("hash_bucket_size", hash_bucket_size, key),
        _kinds.to_categorical_dtype(dtype, key),
    )


def is_missing(values: jax.Array) -> jax.Array:
    """Returns whether integers mark a missing value: -1, as in TensorFlow."""
    return values == -1 if jnp.iinfo(values.dtype).min < 0 else jnp.zeros(values.shape, bool)


def check_bucket_count(name: str, count: object, key: object) -> int:
    """Checks a number of buckets.

    Raises:
        ArgumentError: If it is no integer from 1 to 2**31 - 1.
    """
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or not 1 <= count < 2**31:
        raise ArgumentError(f"{name} must be an integer from 1 to 2**31 - 1. Received for {key!r}: {count!r}.")
    return int(count)


def check_kind(features: Features, key: str, dtype: np.dtype[Any]) -> None:
    """Checks that a feature is text or numbers, by its column's dtype.

    Raises:
        ArgumentError: If not.
    """
    is_text = features.is_text(key)
    if is_text != (dtype == _kinds.TEXT):
        raise ArgumentError(
            f"A column's dtype says what its feature holds. Received for {key!r}: dtype {_kinds.dtype_name(dtype)}, "
            f"and {'text' if is_text else 'numbers'} as the feature. Change the dtype of the column."
        )


def variable_length(key: str, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Returns the parsing spec of a feature with any number of values."""
    from lockstep.data.internal import VarLenFeature

    return {key: VarLenFeature(dtype)}
