"""Columns as a layer, and as the function of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras
from keras.src.utils.naming import uniquify

from lockstep.errors import UnsupportedError
from lockstep.feature_column._columns import (
    DenseColumn,
    FeatureColumn,
    KeptWeights,
    Weights,
    check_batches,
    dense_columns,
    flat,
    scope_name,
)
from lockstep.feature_column._features import Features, is_text


class DenseFeatures(keras.layers.Layer):
    """Turns features into one array, by columns of numbers.

    Call it with a dict of features; it returns float32 (batch, sum of the columns' widths), the columns in the order of
    their names.

    Args:
        feature_columns: Columns that give numbers.
        trainable: Whether optimizers change its variables.
        name: Of the layer.

    Raises:
        ArgumentError: If a column gives categories, or a feature is missing.

    Source: tf.keras.layers.DenseFeatures.
    """

    def __init__(self, feature_columns: Any, trainable: bool = True, name: str | None = None, **kwargs: Any) -> None:
        self._columns = tuple(dense_columns(feature_columns))
        super().__init__(trainable=trainable, name=name, **kwargs)
        # Features are a dict, also of text and of integers, which stay what they are.
        self._allow_non_tensor_positional_args = True
        self._convert_input_args = False
        self._made: list[Any] = []  # Keras finds a layer's variables in its lists.
        self._kept = KeptWeights(self._make)

    def __call__(self, features: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes the columns; see `call`."""
        # Keras refuses a dict of tensors and of what is none, such as text; of an object it does not look inside.
        has_text = isinstance(features, Mapping) and any(is_text(value) for value in features.values())
        return super().__call__(Features(features) if has_text else features, *args, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        """Makes the variables of the columns.

        Args:
            input_shape: Without effect: variables do not depend on it.
        """
        for column in self._columns:
            column.make_variables(self._kept)
        self.built = True

    def call(
        self,
        features: Any,
        cols_to_output_tensors: dict[FeatureColumn, Any] | None = None,
        training: bool | None = None,
    ) -> jax.Array:
        """Returns the columns' numbers.

        Args:
            features: Arrays by name.
            cols_to_output_tensors: If given, receives the numbers of each column.
            training: Without effect: columns are the same in training.
        """
        seen = features if isinstance(features, Features) else Features(features)
        return _joined(self._columns, seen, self._kept, cols_to_output_tensors)

    def _make(self, *description: Any) -> Any:
        variable = maker(self.trainable)(*description)
        self._made.append(variable)
        return variable


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: None = None,
    trainable: bool = True,
    cols_to_vars: dict[FeatureColumn, Any] | None = None,
    cols_to_output_tensors: dict[FeatureColumn, Any] | None = None,
) -> jax.Array:
    """Turns features into one array, by columns of numbers; for use inside of a model_fn.

    Args:
        features: Arrays by name.
        feature_columns: Columns that give numbers.
        weight_collections: `None`: there are no collections.
        trainable: Whether optimizers change the variables.
        cols_to_vars: If given, receives the variables of each column.
        cols_to_output_tensors: If given, receives the numbers of each column.

    Returns:
        float32 (batch, sum of the columns' widths), the columns in the order of their names.

    Raises:
        ArgumentError: If a column gives categories, or a feature is missing.
        UnsupportedError: If collections are given.

    Source: tf.compat.v1.feature_column.input_layer.
    """
    refuse_collections(weight_collections)
    columns = tuple(dense_columns(feature_columns))
    with keras.name_scope(uniquify("input_layer")):
        weights = KeptWeights(maker(trainable))
        found = _joined(columns, Features(features), weights, cols_to_output_tensors)
    if cols_to_vars is not None:
        cols_to_vars.update({column: weights.of(column) for column in columns})
    return found


def _joined(
    columns: tuple[DenseColumn, ...], features: Features, weights: Weights, outputs: dict[FeatureColumn, Any] | None
) -> jax.Array:
    found = [flat(column, column.dense(features, weights)) for column in columns]
    check_batches(columns, found)
    if outputs is not None:
        outputs.update(zip(columns, found, strict=True))
    return jnp.concatenate(found, axis=-1)


def maker(all_trainable: bool) -> Any:
    """Returns a function that makes variables of columns, named by their columns."""

    def make(column: FeatureColumn, name: str, shape: tuple[int, ...], initializer: Any, trainable: bool) -> Any:
        with keras.name_scope(scope_name(column.name)):
            return keras.Variable(
                initializer, shape=shape, dtype="float32", trainable=all_trainable and trainable, name=name
            )

    return make


def refuse_collections(collections: Any) -> None:
    """Refuses collections of TensorFlow 1's graphs.

    Raises:
        UnsupportedError: If there are any.
    """
    if collections:
        raise UnsupportedError(
            f"There are no collections of variables. Received: weight_collections={collections!r}. Use cols_to_vars."
        )
