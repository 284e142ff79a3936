"""Dense columns as a Keras layer, and as TensorFlow 1's function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras
from keras.src.utils.naming import uniquify

from lockstep._types import PyTree, Variable
from lockstep.errors import UnsupportedError
from lockstep.estimator.feature_column._columns import (
    ColumnVariables,
    DenseColumn,
    FeatureColumn,
    Initializer,
    VariableFactory,
    VariableProvider,
    check_batches,
    dense_columns,
    flatten,
    scope_name,
)
from lockstep.estimator.feature_column._features import Features, is_text


class DenseFeatures(keras.layers.Layer):
    """Layer that concatenates dense columns into one array.

    Call it with a dict of features; it returns float32 (batch, sum of the columns' widths), sorted by the columns'
    names.

    Args:
        feature_columns: Dense columns.
        trainable: Whether optimizers update its variables.
        name: Name of the layer.

    Raises:
        ArgumentError: If a column is categorical, or a feature is missing.

    Source: tf.keras.layers.DenseFeatures.
    """

    def __init__(
        self,
        feature_columns: Iterable[FeatureColumn] | FeatureColumn,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._columns = tuple(dense_columns(feature_columns))
        super().__init__(trainable=trainable, name=name, **kwargs)
        # Features may be text or integers: Keras must not convert them to its floating dtype.
        self._allow_non_tensor_positional_args = True
        self._convert_input_args = False
        # Keras finds a layer's variables in its attributes' lists; those of `_column_variables` it would not.
        self._tracked: list[Variable] = []
        self._column_variables = ColumnVariables(self._create)

    def __call__(self, features: PyTree, *args: Any, **kwargs: Any) -> Any:
        """Computes the columns; see `call`."""
        # Keras refuses a dict that mixes tensors with text; it does not look inside of an object.
        has_text = isinstance(features, Mapping) and any(is_text(value) for value in features.values())
        return super().__call__(Features(features) if has_text else features, *args, **kwargs)

    def build(self, input_shape: PyTree | None = None) -> None:
        """Creates the variables of the columns.

        Args:
            input_shape: Ignored: variables do not depend on it.
        """
        for column in self._columns:
            column.make_variables(self._column_variables)
        self.built = True

    def call(
        self,
        features: PyTree,
        cols_to_output_tensors: dict[FeatureColumn, Any] | None = None,
        training: bool | None = None,
    ) -> jax.Array:
        """Computes the columns.

        Args:
            features: Arrays by name.
            cols_to_output_tensors: A dict that receives each column's values; `None` for none.
            training: Ignored: columns are the same in training.
        """
        wrapped = features if isinstance(features, Features) else Features(features)
        return _concatenate(self._columns, wrapped, self._column_variables, cols_to_output_tensors)

    def _create(self, *description: Any) -> Variable:
        variable = variable_factory(self.trainable)(*description)
        self._tracked.append(variable)
        return variable


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Iterable[FeatureColumn] | FeatureColumn,
    weight_collections: None = None,
    trainable: bool = True,
    cols_to_vars: dict[FeatureColumn, Any] | None = None,
    cols_to_output_tensors: dict[FeatureColumn, Any] | None = None,
) -> jax.Array:
    """Concatenates dense columns into one array; for use in a model_fn.

    Args:
        features: Arrays by name.
        feature_columns: Dense columns.
        weight_collections: `None` only: there are no collections of variables.
        trainable: Whether optimizers update the variables.
        cols_to_vars: A dict that receives each column's variables; `None` for none.
        cols_to_output_tensors: A dict that receives each column's values; `None` for none.

    Returns:
        float32 (batch, sum of the columns' widths), sorted by the columns' names.

    Raises:
        ArgumentError: If a column is categorical, or a feature is missing.
        UnsupportedError: For collections.

    Source: tf.compat.v1.feature_column.input_layer.
    """
    refuse_collections(weight_collections)
    columns = tuple(dense_columns(feature_columns))
    # TensorFlow's names: input_layer, input_layer_1, which checkpoints have.
    with keras.name_scope(uniquify("input_layer")):
        weights = ColumnVariables(variable_factory(trainable))
        values = _concatenate(columns, Features(features), weights, cols_to_output_tensors)
    if cols_to_vars is not None:
        cols_to_vars.update({column: weights.of(column) for column in columns})
    return values


def _concatenate(
    columns: tuple[DenseColumn, ...],
    features: Features,
    weights: VariableProvider,
    outputs: dict[FeatureColumn, Any] | None,
) -> jax.Array:
    # By name, the order of `columns`: the rows of the next layer's weights depend on it.
    values = [flatten(column, column.dense(features, weights)) for column in columns]
    check_batches(columns, values)
    if outputs is not None:
        outputs.update(zip(columns, values, strict=True))
    return jnp.concatenate(values, axis=-1)


def variable_factory(all_trainable: bool) -> VariableFactory:
    """Returns a function that creates variables in the name scopes of their columns."""

    def create(
        column: FeatureColumn, name: str, shape: tuple[int, ...], initializer: Initializer, trainable: bool
    ) -> Any:
        # float32 whatever Keras' floatx is, as TensorFlow's columns; both the layer and the column may freeze it.
        with keras.name_scope(scope_name(column.name)):
            return keras.Variable(
                initializer, shape=shape, dtype="float32", trainable=all_trainable and trainable, name=name
            )

    return create


def refuse_collections(collections: object) -> None:
    """Refuses collections of variables, a feature of TensorFlow 1's graphs."""
    if collections:
        raise UnsupportedError(
            f"There are no collections of variables. Received: weight_collections={collections!r}. Use cols_to_vars."
        )
