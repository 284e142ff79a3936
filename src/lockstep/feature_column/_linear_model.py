"""Columns in a linear model: each number, and each category, has its own weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import keras
from keras.src.utils.naming import uniquify

from lockstep.errors import ArgumentError
from lockstep.feature_column._columns import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    KeptWeights,
    check_batches,
    flat,
    normalised,
)
from lockstep.feature_column._dense_features import maker, refuse_collections
from lockstep.feature_column._features import Features
from lockstep.feature_column._lookup import check_combiner, combined


@dataclass(frozen=True)
class LinearOutput:
    """What a linear model has computed.

    Attributes:
        predictions: float32 (batch, units).
        bias: Its variable (units,).
        weights: The variables of each column.
    """

    predictions: jax.Array
    bias: Any
    weights: dict[FeatureColumn, list[Any]]

    @property
    def variables(self) -> list[Any]:
        """All variables."""
        return [variable for made in self.weights.values() for variable in made] + [self.bias]


def linear_output(
    features: Mapping[str, Any], feature_columns: Any, units: int, sparse_combiner: str, trainable: bool = True
) -> LinearOutput:
    """Computes a linear model; its variables are named by the columns, and "bias_weights"."""
    check_combiner("sparse_combiner", sparse_combiner)
    if units < 1:
        raise ArgumentError(f"units must be at least 1. Received: {units!r}.")
    columns, weights, seen = normalised(feature_columns), KeptWeights(maker(trainable)), Features(features)
    sums = [_weighted_sum(column, seen, weights, units, sparse_combiner) for column in columns]
    check_batches(columns, sums)
    bias = keras.Variable("zeros", shape=(units,), dtype="float32", trainable=trainable, name="bias_weights")
    predictions = sum(sums[1:], sums[0]) + bias.value
    return LinearOutput(predictions, bias, {column: weights.of(column) for column in columns})


def _weighted_sum(
    column: FeatureColumn, features: Features, weights: KeptWeights, units: int, combiner: str
) -> jax.Array:
    if isinstance(column, CategoricalColumn):
        table = weights.get(column, "weights", (column.num_buckets, units), "zeros")
        return combined(table.value, column.ids(features), combiner)
    if not isinstance(column, DenseColumn):
        raise ArgumentError(f"A linear model takes columns of numbers or categories. Received: {column!r}.")
    numbers = flat(column, column.dense(features, weights))
    return numbers @ weights.get(column, "weights", (column.width, units), "zeros").value


def linear_model(
    features: Mapping[str, Any],
    feature_columns: Any,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> jax.Array:
    """Returns a weighted sum of features; for use inside of a model_fn.

    Args:
        features: Arrays by name.
        feature_columns: Columns of numbers or categories.
        units: How many sums.
        sparse_combiner: How the weights of several categories become one: "sum", "mean" or "sqrtn".
        weight_collections: `None`: there are no collections.
        trainable: Whether optimizers change the variables.
        cols_to_vars: If given, receives the variables of each column, and under "bias" the bias.

    Returns:
        float32 (batch, units).

    Raises:
        ArgumentError: If an argument is wrong, or a feature is missing.
        UnsupportedError: If collections are given.

    Source: tf.compat.v1.feature_column.linear_model.
    """
    refuse_collections(weight_collections)
    with keras.name_scope(uniquify("linear_model")):
        found = linear_output(features, feature_columns, units, sparse_combiner, trainable)
    if cols_to_vars is not None:
        cols_to_vars.update(found.weights)
        cols_to_vars["bias"] = [found.bias]
    return found.predictions
