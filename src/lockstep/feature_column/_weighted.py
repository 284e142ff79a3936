"""Categorical columns with weights from another feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep.errors import ArgumentError
from lockstep.feature_column import _kinds
from lockstep.feature_column._columns import CategoricalColumn, Ids
from lockstep.feature_column._features import Features
from lockstep.feature_column._hashed import variable_length


@dataclass(frozen=True)
class WeightedCategoricalColumn(CategoricalColumn):
    """What `weighted_categorical_column` returns; see there."""

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
        return features.once(self, lambda: self._weighted(features))

    def _weighted(self, features: Features) -> Ids:
        found = self.categorical_column.ids(features)
        weights = features.numbers(self.weight_feature_key)
        if weights.shape != found.ids.shape:
            raise ArgumentError(
                f"There is one weight for each category. Received for {self.name}: weights of shape {weights.shape}, "
                f"categories of shape {found.ids.shape}."
            )
        return Ids(found.ids, weights.astype(jnp.float32))


def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: Any = np.float32
) -> WeightedCategoricalColumn:
    """Gives the categories of a column weights.

    Args:
        categorical_column: The column.
        weight_feature_key: The name of the feature that holds a weight for each category, in the same shape.
        dtype: Of the weights.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.feature_column.weighted_categorical_column.
    """
    key = _kinds.checked_key(weight_feature_key)
    check_categorical("categorical_column", categorical_column)
    if isinstance(categorical_column, WeightedCategoricalColumn):
        raise ArgumentError(
            f"A column has one feature of weights. Received: {categorical_column}, which has one already."
        )
    found = _kinds.as_dtype(dtype, key)
    if not _kinds.is_number(found):
        raise ArgumentError(f"Weights are numbers. Received for {key!r}: dtype {_kinds.described(found)}.")
    return WeightedCategoricalColumn(categorical_column, key, found)


def check_categorical(name: str, column: Any) -> None:
    """Checks that an argument is a categorical column.

    Raises:
        ArgumentError: If not.
    """
    if not isinstance(column, CategoricalColumn):
        raise ArgumentError(
            f"{name} must be a column of categories, from categorical_column_with_..., bucketized_column, "
            f"crossed_column or weighted_categorical_column. Received: {column!r}."
        )
