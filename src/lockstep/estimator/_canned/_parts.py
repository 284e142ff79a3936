"""Parts of canned models: fully connected layers, linear models, their optimizers and summaries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common.name_scope import current_path

from lockstep._types import Array, PyTree, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head
from lockstep.estimator._heads._head import add_scalar
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.scope import current, demand
from lockstep.estimator._run_config import RunConfig
from lockstep.estimator._warm_start import WarmStartSettings
from lockstep.estimator.feature_column import DenseFeatures
from lockstep.estimator.feature_column._columns import FeatureColumn, dense_columns, sort_columns
from lockstep.estimator.feature_column._linear_model import linear_output
from lockstep.estimator.feature_column._lookup import check_combiner
from lockstep.estimator.feature_column._numeric import NumericColumn
from lockstep.estimator.train import Optimizer

Features = Mapping[str, Tensor]
Columns = Iterable[FeatureColumn]
Path = str | PathLike[str]
OptimizerLike: TypeAlias = Any
"""An optimizer's name, an optimizer of Keras, lockstep.estimator.train or optax, or a function that returns one."""
WeightColumn = str | NumericColumn | None
Activation = Callable[[Any], Any] | str | None
WarmStart = str | WarmStartSettings | None
Logits = Callable[[Features, str, int], jax.Array]
"""Builds logits, float32 (batch, units), from features, mode and units."""


@dataclass(frozen=True)
class Layers:
    """Fully connected layers on feature columns; see `DNNEstimator` for the arguments."""

    hidden_units: tuple[int, ...]
    feature_columns: tuple[FeatureColumn, ...]
    activation_fn: Activation
    dropout: float | None
    batch_norm: bool

    @classmethod
    def create(
        cls,
        hidden_units: Any,
        feature_columns: Columns,
        activation_fn: Activation,
        dropout: float | None,
        batch_norm: bool,
    ) -> Layers:
        """Checks arguments and creates layers."""
        # Checked here, when the estimator is made, rather than in the first call of its model_fn.
        sizes = tuple(hidden_units) if isinstance(hidden_units, Iterable) else (hidden_units,)
        if not sizes or not all(isinstance(size, (int, np.integer)) and size >= 1 for size in sizes):
            raise ArgumentError(
                f"hidden_units must be the sizes of the layers, such as [64, 32]. Received: {hidden_units!r}."
            )
        if dropout is not None and not 0 <= dropout < 1:
            raise ArgumentError(f"dropout must be from 0 up to but without 1, or None. Received: {dropout!r}.")
        # Tuples: the dataclass is frozen, and a program may change its lists after it has made the estimator.
        columns = tuple(dense_columns(feature_columns))
        return cls(tuple(int(size) for size in sizes), columns, activation_fn, dropout, bool(batch_norm))

    def logits(self, features: Features, mode: str, units: int) -> jax.Array:
        """Builds the layers under the current name scope; returns logits, float32 (batch, units)."""
        is_training = mode == ModeKeys.TRAIN
        # The names of scopes, layers and summaries are those of TensorFlow's `_DNNModelV2`: checkpoints have them.
        with keras.name_scope("input_from_feature_columns"):
            values = DenseFeatures(self.feature_columns, name="input_layer")(features)
        for number, size in enumerate(self.hidden_units):
            name = f"hiddenlayer_{number}"
            values = keras.layers.Dense(size, activation=self.activation_fn, name=name)(values)
            # Dropout before batch normalization, as in TensorFlow: the statistics are those of thinned activations.
            if self.dropout is not None and is_training:
                values = keras.layers.Dropout(self.dropout)(values, training=True)
            if self.batch_norm:
                with keras.name_scope(name):
                    # TensorFlow's momentum; with Keras' 0.99 the statistics would follow ten times fewer steps.
                    normalise = keras.layers.BatchNormalization(momentum=0.999, name=f"batchnorm_{number}")
                    values = normalise(values, training=is_training)
            add_layer_summaries(values, name)
        logits = keras.layers.Dense(units, name="logits")(values)
        add_layer_summaries(logits, "logits")
        return logits


def add_layer_summaries(values: Array, name: str) -> None:
    """Adds a layer's histogram of activations and fraction of zeros, under the current name scope."""
    # The fraction of zeros shows layers of relu that have died.
    tag = "/".join(part for part in (current_path(), name) if part)
    add_scalar(f"{tag}/fraction_of_zero_values", jnp.mean(values == 0))
    _add_histogram(f"{tag}/activation", values)


def _add_histogram(tag: str, values: Array) -> None:
    scope = current()
    if scope is not None:
        scope.add_summary(SummaryOp("histogram", tag, values))


@dataclass(frozen=True)
class LinearModel:
    """A weighted sum of dense or categorical feature columns."""

    feature_columns: tuple[FeatureColumn, ...]
    sparse_combiner: str

    @classmethod
    def create(cls, feature_columns: Columns, sparse_combiner: str) -> LinearModel:
        """Checks arguments and creates a linear model."""
        check_combiner("sparse_combiner", sparse_combiner)
        return cls(tuple(sort_columns(feature_columns)), sparse_combiner)

    def logits(self, features: Features, mode: str, units: int) -> jax.Array:
        """Builds the model under the current name scope; returns logits, float32 (batch, units)."""
        with keras.name_scope("linear_model"):
            output = linear_output(features, self.feature_columns, units, self.sparse_combiner)
        # TensorFlow's summaries: the bias as a number if there is one, and how sparse the optimizer keeps the weights.
        bias, weights = output.bias, output.variables[:-1]
        if units > 1:
            _add_histogram("bias", bias.value)
        else:
            add_scalar("bias", bias.value[0])
        # A summary of each step is no reason to fetch a table that parameter servers hold by rows.
        scope = current()
        weights = [v for v in weights if scope is None or not scope.is_large(v)]
        if weights:
            zeros = sum(jnp.sum(variable.value == 0) for variable in weights)
            add_scalar("fraction_of_zero_weights", zeros / sum(variable.value.size for variable in weights))
        return output.predictions


@dataclass(frozen=True)
class Part:
    """A built part of a model: logits, float32 (batch, units), and its trainable variables."""

    logits: jax.Array
    variables: Sequence[Variable]


def build_part(name: str, logits: Callable[[], jax.Array]) -> Part:
    """Builds a part of a model under a name scope, and collects its trainable variables."""
    scope = demand("A canned model")
    # By difference, since layers made by feature columns are not known here; each part trains its own variables only.
    before = {id(variable) for variable in scope.trainable_variables()}
    with keras.name_scope(name):
        values = logits()
    return Part(values, [v for v in scope.trainable_variables() if id(v) not in before])


def part_model_fn(
    name: str, head: Head, logits: Logits, optimizer: OptimizerLike, learning_rate: float | None = None
) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of a model of one part, with a head."""

    def model_fn(features: Features, labels: PyTree, mode: str, config: RunConfig) -> EstimatorSpec:
        part = build_part(name, lambda: logits(features, mode, head.logits_dimension))
        return head.create_estimator_spec(
            features=features,
            mode=mode,
            labels=labels,
            logits=part.logits,
            # In training only: an optimizer makes variables, which evaluation would look for in the checkpoint.
            optimizer=create_optimizer(optimizer, learning_rate) if mode == ModeKeys.TRAIN else None,
            trainable_variables=part.variables,
        )

    return model_fn


class RMSProp(keras.optimizers.RMSprop):
    """Keras' RMSprop without momentum, and with the epsilon outside of the root.

    With gradients of 0.001, Keras' steps are a third smaller. Source: tf.keras.optimizers.legacy.RMSprop.
    """

    def __init__(self, learning_rate: float = 0.001) -> None:
        # The name is part of the names of its slots in checkpoints.
        super().__init__(learning_rate=learning_rate, name="rmsprop")

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        """Updates one variable; called by Keras."""
        squares = self._velocities[self._get_variable_index(variable)]
        # The legacy class' formula and names: canned estimators of TensorFlow 2 use the optimizers before Keras 2.11.
        squares.assign(self.rho * squares.value + (1 - self.rho) * gradient**2)
        variable.assign(variable.value - learning_rate * gradient / (jnp.sqrt(squares.value) + self.epsilon))


# TensorFlow's `get_optimizer_instance_v2` of canned estimators.
_BY_NAME: dict[str, Callable[..., Any]] = {
    "Adagrad": keras.optimizers.Adagrad,
    "Adam": keras.optimizers.Adam,
    "Ftrl": keras.optimizers.Ftrl,
    "RMSProp": RMSProp,
    "SGD": keras.optimizers.SGD,
}


def create_optimizer(optimizer: OptimizerLike, learning_rate: float | None = None) -> Any:
    """Returns an optimizer, created in the current model_fn call if given by name or function.

    `learning_rate` is that of a named one; `None` for Keras' default.
    """
    if isinstance(optimizer, str):
        if optimizer not in _BY_NAME:
            raise ArgumentError(
                f"The names of optimizers are {', '.join(_BY_NAME)}. Received: {optimizer!r}. Pass others as objects, "
                "or as a function that makes one."
            )
        return _BY_NAME[optimizer](**({} if learning_rate is None else {"learning_rate": learning_rate}))
    # optax' transformations are NamedTuples with an `update`, and have no common class here. An optimizer's class is
    # a function that returns one.
    is_optimizer = isinstance(optimizer, (keras.optimizers.Optimizer, Optimizer)) or hasattr(optimizer, "update")
    return optimizer() if callable(optimizer) and (isinstance(optimizer, type) or not is_optimizer) else optimizer


def check_units(units: Any) -> int:
    """Checks that a number of logits is an integer of at least 1."""
    if not isinstance(units, (int, np.integer)) or units < 1:
        raise ArgumentError(f"units must be an integer from 1 up. Received: {units!r}.")
    return int(units)


def divided_by(name: str, partitioner: Any, build: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that makes a model, whose tables parameter servers divide as a partitioner says.

    Args:
        name: The name of the argument, for messages.
        partitioner: A function of shape and dtype that returns the number of parts along each axis; or `None`.
        build: Makes the model, in a model_fn.
    """
    if partitioner is None:
        return build
    if not callable(partitioner):
        raise ArgumentError(
            f"{name} is a function of shape and dtype, such as lockstep.distribute.experimental.partitioners has. "
            f"Received: {partitioner!r}. Leave it out, or pass one."
        )

    def parts(shape: tuple[int, ...], dtype: str) -> list[int]:
        counts: Any = partitioner(shape=shape, dtype=np.dtype(dtype))
        return list(counts)

    def divided(*args: Any, **kwargs: Any) -> Any:
        with demand(name).dividing(parts):
            return build(*args, **kwargs)

    # The Estimator looks at a model_fn's arguments.
    functools.update_wrapper(divided, build)

    return divided
