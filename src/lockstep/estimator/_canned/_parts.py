"""The parts that canned models consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import keras
import numpy as np

from lockstep._model_fn.scope import demand
from lockstep.errors import ArgumentError
from lockstep.estimator._canned import _summaries
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.feature_column import DenseFeatures
from lockstep.feature_column._columns import FeatureColumn, dense_columns, normalised
from lockstep.feature_column._linear_model import linear_output
from lockstep.feature_column._lookup import check_combiner

Features = Mapping[str, Any]


@dataclass(frozen=True)
class Layers:
    """Fully connected layers on columns.

    Args:
        hidden_units: The sizes of the layers.
        feature_columns: Columns that give numbers.
        activation_fn: Applied behind each hidden layer; `None` for nothing.
        dropout: Which part of each hidden layer is left out in training; `None` for nothing.
        batch_norm: Whether each hidden layer is normalised over the batch.
    """

    hidden_units: tuple[int, ...]
    feature_columns: tuple[FeatureColumn, ...]
    activation_fn: Callable[[Any], Any] | str | None
    dropout: float | None
    batch_norm: bool

    @classmethod
    def checked(
        cls, hidden_units: Any, feature_columns: Any, activation_fn: Any, dropout: float | None, batch_norm: bool
    ) -> Layers:
        """Returns layers.

        Raises:
            ArgumentError: If an argument is wrong.
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
        """Returns the last layer's values: float32 (batch, units). Variables are named under the open name scope."""
        with keras.name_scope("input_from_feature_columns"):
            values = DenseFeatures(self.feature_columns, name="input_layer")(features)
        for number, size in enumerate(self.hidden_units):
            values = self._hidden(values, f"hiddenlayer_{number}", size, mode == ModeKeys.TRAIN)
        logits = keras.layers.Dense(units, name="logits")(values)
        _summaries.add_layer(logits, "logits")
        return logits

    def _hidden(self, values: Any, name: str, size: int, is_training: bool) -> Any:
        values = keras.layers.Dense(size, activation=self.activation_fn, name=name)(values)
        if self.dropout is not None and is_training:
            values = keras.layers.Dropout(self.dropout)(values, training=True)
        if self.batch_norm:
            with keras.name_scope(name):
                # TensorFlow's; Keras' default of 0.99 forgets faster.
                normalise = keras.layers.BatchNormalization(momentum=0.999, name=f"batchnorm_{name.split('_')[1]}")
                values = normalise(values, training=is_training)
        _summaries.add_layer(values, name)
        return values


@dataclass(frozen=True)
class Weights:
    """A weighted sum of columns.

    Args:
        feature_columns: Columns of numbers or categories.
        sparse_combiner: How the weights of several categories become one.
    """

    feature_columns: tuple[FeatureColumn, ...]
    sparse_combiner: str

    @classmethod
    def checked(cls, feature_columns: Any, sparse_combiner: str) -> Weights:
        """Returns a weighted sum.

        Raises:
            ArgumentError: If an argument is wrong.
        """
        check_combiner("sparse_combiner", sparse_combiner)
        return cls(tuple(normalised(feature_columns)), sparse_combiner)

    def logits(self, features: Features, units: int) -> jax.Array:
        """Returns the sums: float32 (batch, units). Variables are named under the open name scope."""
        with keras.name_scope("linear_model"):
            found = linear_output(features, self.feature_columns, units, self.sparse_combiner)
        _summaries.add_weights(found.bias, found.variables[:-1])
        return found.predictions


@dataclass(frozen=True)
class Part:
    """What a part of a model has computed.

    Attributes:
        logits: float32 (batch, units).
        variables: Its trainable variables.
    """

    logits: jax.Array
    variables: Sequence[Any]


def part(name: str, logits: Callable[[], jax.Array]) -> Part:
    """Computes a part of a model, its variables named under `name`."""
    scope = demand("A canned model")
    before = {id(variable) for variable in scope.trainable_variables()}
    with keras.name_scope(name):
        found = logits()
    return Part(found, [v for v in scope.trainable_variables() if id(v) not in before])
