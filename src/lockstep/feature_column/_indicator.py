"""Columns of one number for each category: how often an example has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lockstep.feature_column._columns import CategoricalColumn, DenseColumn, Ids, Weights
from lockstep.feature_column._features import Features
from lockstep.feature_column._weighted import check_categorical


@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """What `indicator_column` returns; see there."""

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

    def dense(self, features: Features, weights: Weights) -> jax.Array:
        return features.once(self, lambda: self._counted(self.categorical_column.ids(features)))

    def _counted(self, found: Ids) -> jax.Array:
        batch, size = found.ids.shape[0], self.categorical_column.num_buckets
        # A negative index would count from the end; one behind the end is dropped.
        places = jnp.where(found.ids < 0, size, found.ids)
        amounts = jnp.ones(places.shape, jnp.float32) if found.weights is None else found.weights
        counts = jnp.zeros((batch, size), jnp.float32)
        return counts.at[jnp.arange(batch)[:, None], places].add(amounts, mode="drop")[:, None]


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """Describes how often each category of a column is in an example: 1 or 0 if there is one; or their weights.

    Args:
        categorical_column: The column.

    Raises:
        ArgumentError: If it does not give categories.

    Source: tf.feature_column.indicator_column.
    """
    check_categorical("categorical_column", categorical_column)
    return IndicatorColumn(categorical_column)
