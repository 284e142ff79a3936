"""Categorical columns of integers that are their own categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _kinds
from lockstep.estimator.feature_column._columns import CategoricalColumn, Ids, missing
from lockstep.estimator.feature_column._features import Features, integer_feature
from lockstep.estimator.feature_column._hashed import check_bucket_count, check_kind, is_missing, variable_length


@dataclass(frozen=True)
class IdentityCategoricalColumn(CategoricalColumn):
    """Column of `categorical_column_with_identity`."""

    key: str
    number_buckets: int
    default_value: int | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return variable_length(self.key, np.dtype(np.int64))

    @property
    def num_buckets(self) -> int:
        return self.number_buckets

    def ids(self, features: Features) -> Ids:
        check_kind(features, self.key, np.dtype(np.int64))
        return features.cached(self, lambda: Ids(self._to_ids(integer_feature(features, self.key))))

    def _to_ids(self, values: jax.Array) -> jax.Array:
        padding = is_missing(values)
        ids = values.astype(jnp.promote_types(values.dtype, jnp.int32))
        # Without a default, a number beyond the range stays, and a lookup of it gives NaN.
        if self.default_value is not None:
            ids = jnp.where((ids >= 0) & (ids < self.num_buckets), ids, self.default_value)
        return jnp.where(padding, missing(ids.dtype), ids)


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
    count = check_bucket_count("num_buckets", num_buckets, _kinds.check_key(key))
    if default_value is not None and not 0 <= default_value < count:
        raise ArgumentError(
            f"default_value must be one of the categories, 0 to {count - 1}. Received for {key!r}: {default_value!r}."
        )
    return IdentityCategoricalColumn(key, count, default_value)
