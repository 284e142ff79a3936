"""Parts of canned models: fully connected layers, and linear models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import keras
import numpy as np

from lockstep._types import Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._canned import _summaries
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.scope import demand
from lockstep.estimator.feature_column import DenseFeatures
from lockstep.estimator.feature_column._columns import FeatureColumn, dense_columns, sort_columns
from lockstep.estimator.feature_column._linear_model import linear_output
from lockstep.estimator.feature_column._lookup import check_combiner

Features = Mapping[str, Tensor]


@dataclass(frozen=True)
class Layers:
    """Fully connected layers on feature columns.

    Args:
        hidden_units: The sizes of the layers.
        feature_columns: Dense feature columns.
        activation_fn: The activation of each hidden layer; `None` for none.
        dropout: The dropout rate of each hidden layer; `None` for no dropout.
        batch_norm: Whether to use batch normalization after each hidden layer.
    """

    hidden_units: tuple[int, ...]
    feature_columns: tuple[FeatureColumn, ...]
    activation_fn: Callable[[Any], Any] | str | None
    dropout: float | None
    batch_norm: bool

    @classmethod
    def create(
        cls,
        hidden_units: Any,
        feature_columns: Iterable[FeatureColumn],
        activation_fn: Callable[[Any], Any] | str | None,
        dropout: float | None,
        batch_norm: bool,
    ) -> Layers:
        """Checks arguments and creates layers.

        Raises:
            ArgumentError: If an argument is invalid.
        """
        sizes = tuple(hidden_units) if isinstance(hidden_units, Iterable) else (hidden_units,)
        if not sizes or not all(isinstance(size, (int, np.integer)) and size >= 1 for size in sizes):
            raise ArgumentError(
                f"hidden_units must be the sizes of the layers, such as [64, 32]. Received: {hidden_units!r}."
            )
        if dropout is not None and not 0 <= dropout < 1:
            raise ArgumentError(f"dropout must be from 0 up to but without 1, or None. Received: {dropout!r}.")
        columns = tuple(dense_columns(feature_columns))
        return cls(tuple(int(size) for size in sizes), columns, activation_fn, dropout, bool(batch_norm))

    def logits(self, features: Features, mode: str, units: int) -> jax.Array:
        """Builds the layers under the current name scope; returns logits, float32 (batch, units)."""
        with keras.name_scope("input_from_feature_columns"):
            values = DenseFeatures(self.feature_columns, name="input_layer")(features)
        for number, size in enumerate(self.hidden_units):
            values = self._hidden(values, f"hiddenlayer_{number}", size, mode == ModeKeys.TRAIN)
        logits = keras.layers.Dense(units, name="logits")(values)
        _summaries.add_layer(logits, "logits")
        return logits

    def _hidden(self, values: jax.Array, name: str, size: int, is_training: bool) -> jax.Array:
        values = keras.layers.Dense(size, activation=self.activation_fn, name=name)(values)
        if self.dropout is not None and is_training:
            values = keras.layers.Dropout(self.dropout)(values, training=True)
        if self.batch_norm:
            with keras.name_scope(name):
                # TensorFlow's momentum; with Keras' 0.99 the statistics would follow ten times fewer steps.
                normalise = keras.layers.BatchNormalization(momentum=0.999, name=f"batchnorm_{name.split('_')[1]}")
                values = normalise(values, training=is_training)
        _summaries.add_layer(values, name)
        return values


@dataclass(frozen=True)
class LinearModel:
    """A weighted sum of feature columns.

    Args:
        feature_columns: Dense or categorical feature columns.
        sparse_combiner: The combiner of the weights of a column's categories.
    """

    feature_columns: tuple[FeatureColumn, ...]
    sparse_combiner: str

    @classmethod
    def create(cls, feature_columns: Iterable[FeatureColumn], sparse_combiner: str) -> LinearModel:
        """Checks arguments and creates a linear model.

        Raises:
            ArgumentError: If an argument is invalid.
        """
        check_combiner("sparse_combiner", sparse_combiner)
        return cls(tuple(sort_columns(feature_columns)), sparse_combiner)

    def logits(self, features: Features, units: int) -> jax.Array:
        """Builds the model under the current name scope; returns logits, float32 (batch, units)."""
        with keras.name_scope("linear_model"):
            output = linear_output(features, self.feature_columns, units, self.sparse_combiner)
        _summaries.add_weights(output.bias, output.variables[:-1])
        return output.predictions


@dataclass(frozen=True)
class Part:
    """A built part of a model.

    Attributes:
        logits: float32 (batch, units).
        variables: The part's trainable variables.
    """

    logits: jax.Array
    variables: Sequence[Variable]


def build_part(name: str, logits: Callable[[], jax.Array]) -> Part:
    """Builds a part of a model under a name scope, and collects its trainable variables."""
    scope = demand("A canned model")
    # By difference, since layers made by feature columns are not known here.
    before = {id(variable) for variable in scope.trainable_variables()}
    with keras.name_scope(name):
        built = logits()
    return Part(built, [v for v in scope.trainable_variables() if id(v) not in before])
