"""Categorical columns weighted by another feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep._types import DType
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _kinds
from lockstep.estimator.feature_column._columns import CategoricalColumn, Ids
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._hashed import variable_length


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
    key = _kinds.check_key(weight_feature_key)
    check_categorical("categorical_column", categorical_column)
    if isinstance(categorical_column, WeightedCategoricalColumn):
        raise ArgumentError(
            f"A column has one feature of weights. Received: {categorical_column}, which has one already."
        )
    numpy_dtype = _kinds.to_dtype(dtype, key)
    if not _kinds.is_number(numpy_dtype):
        raise ArgumentError(f"Weights are numbers. Received for {key!r}: dtype {_kinds.dtype_name(numpy_dtype)}.")
    return WeightedCategoricalColumn(categorical_column, key, numpy_dtype)


def check_categorical(name: str, column: object) -> None:
    """Checks that an argument is a categorical column.

    Raises:
        ArgumentError: If not.
    """
    if not isinstance(column, CategoricalColumn):
        raise ArgumentError(
            f"{name} must be a column of categories, from categorical_column_with_..., bucketized_column, "
            f"crossed_column or weighted_categorical_column. Received: {column!r}."
        )
