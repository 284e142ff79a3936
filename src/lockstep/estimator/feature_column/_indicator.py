"""Indicator columns: multi-hot counts of categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lockstep.estimator.feature_column._columns import CategoricalColumn, DenseColumn, Ids, VariableProvider
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._weighted import check_categorical


@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """Column of `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (1, self.categorical_column.num_buckets)

    def dense(self, features: Features, weights: VariableProvider) -> jax.Array:
        return features.cached(self, lambda: self._multi_hot(self.categorical_column.ids(features)))

    def _multi_hot(self, categories: Ids) -> jax.Array:
        batch, size = categories.ids.shape[0], self.categorical_column.num_buckets
        # mode="drop" drops an index past the end, but a negative one counts from the end.
        indices = jnp.where(categories.ids < 0, size, categories.ids)
        amounts = jnp.ones(indices.shape, jnp.float32) if categories.weights is None else categories.weights
        counts = jnp.zeros((batch, size), jnp.float32)
        return counts.at[jnp.arange(batch)[:, None], indices].add(amounts, mode="drop")[:, None]


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """Describes a multi-hot array of a column's categories: counts, or sums of weights.

    Args:
        categorical_column: The categorical column.

    Raises:
        ArgumentError: If it is not categorical.

    Source: tf.feature_column.indicator_column.
    """
    check_categorical("categorical_column", categorical_column)
    return IndicatorColumn(categorical_column)
