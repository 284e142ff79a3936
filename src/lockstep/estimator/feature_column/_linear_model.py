"""Linear models of columns: a weight for each number and each category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import keras
from keras.src.utils.naming import uniquify

from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column._columns import (
    CategoricalColumn,
    ColumnVariables,
    DenseColumn,
    FeatureColumn,
    check_batches,
    flatten,
    sort_columns,
)
from lockstep.estimator.feature_column._dense_features import refuse_collections, variable_factory
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._lookup import check_combiner, combine_rows


@dataclass(frozen=True)
class LinearOutput:
    """The predictions of a linear model, float32 (batch, units), its bias, and the variables of each column."""

    predictions: jax.Array
    bias: Any
    weights: dict[FeatureColumn, list[Any]]

    @property
    def variables(self) -> list[Any]:
        """Returns all variables, the bias last."""
        return [*(variable for variables in self.weights.values() for variable in variables), self.bias]


def linear_output(
    features: Mapping[str, Any],
    feature_columns: Iterable[FeatureColumn] | FeatureColumn,
    units: int,
    sparse_combiner: str,
    trainable: bool = True,
) -> LinearOutput:
    """Computes a linear model; names its variables after the columns, and "bias_weights"."""
    check_combiner("sparse_combiner", sparse_combiner)
    if units < 1:
        raise ArgumentError(f"units must be at least 1. Received: {units!r}.")
    columns, weights = sort_columns(feature_columns), ColumnVariables(variable_factory(trainable))
    values = Features(features)
    sums = [_weighted_sum(column, values, weights, units, sparse_combiner) for column in columns]
    # A sum of (batch, units) and (1, units) would broadcast.
    check_batches(columns, sums)
    # TensorFlow's name of the variable in checkpoints.
    bias = keras.Variable("zeros", shape=(units,), dtype="float32", trainable=trainable, name="bias_weights")
    predictions = sum(sums[1:], sums[0]) + bias.value
    return LinearOutput(predictions, bias, {column: weights.of(column) for column in columns})


def _weighted_sum(
    column: FeatureColumn, features: Features, weights: ColumnVariables, units: int, combiner: str
) -> jax.Array:
    # First: a bucketized column is dense, too, and a lookup of its weight does without the one-hot array.
    if isinstance(column, CategoricalColumn):
        # Zeros, as TensorFlow: a linear model needs no symmetry broken, and unseen categories then weigh nothing.
        table = weights.get(column, "weights", (column.num_buckets, units), "zeros")
        return combine_rows(table, column.ids(features), combiner)
    if not isinstance(column, DenseColumn):
        raise ArgumentError(f"A linear model takes columns of numbers or categories. Received: {column!r}.")
    numbers = flatten(column, column.dense(features, weights))
    return numbers @ weights.get(column, "weights", (column.width, units), "zeros").value


def linear_model(
    features: Mapping[str, Any],
    feature_columns: Iterable[FeatureColumn] | FeatureColumn,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> jax.Array:
    """Computes a weighted sum of features; for use in a model_fn.

    Args:
        features: Arrays by name.
        feature_columns: Dense or categorical columns.
        units: Number of sums.
        sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".
        weight_collections: `None` only: there are no collections of variables.
        trainable: Whether optimizers update the variables.
        cols_to_vars: A dict that receives each column's variables, and the bias as "bias".

    Returns:
        float32 (batch, units).

    Raises:
        ArgumentError: If an argument is invalid, or a feature is missing.
        UnsupportedError: If collections are given.

    Source: tf.compat.v1.feature_column.linear_model.
    """
    refuse_collections(weight_collections)
    # TensorFlow's names: linear_model, linear_model_1, which checkpoints have.
    with keras.name_scope(uniquify("linear_model")):
        output = linear_output(features, feature_columns, units, sparse_combiner, trainable)
    if cols_to_vars is not None:
        cols_to_vars.update(output.weights)
        cols_to_vars["bias"] = [output.bias]
    return output.predictions
