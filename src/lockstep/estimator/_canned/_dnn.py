"""Canned estimators of fully connected layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, TypeAlias

import jax
import numpy as np

from lockstep._types import PyTree
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._canned._optimizers import create_optimizer
from lockstep.estimator._canned._parts import Features, Layers, build_part
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._classifiers import classifier_head
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig
from lockstep.estimator._warm_start import WarmStartSettings
from lockstep.estimator.feature_column._columns import FeatureColumn
from lockstep.estimator.feature_column._numeric import NumericColumn

Columns = Iterable[FeatureColumn]
Path = str | PathLike[str]
OptimizerLike: TypeAlias = Any
"""An optimizer's name, an optimizer of Keras, lockstep.estimator.train or optax, or a function that returns one."""
WeightColumn = str | NumericColumn | None
Activation = Callable[[Any], Any] | str | None
WarmStart = str | WarmStartSettings | None


def dnn_model_fn(head: Head, layers: Layers, optimizer: OptimizerLike) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of fully connected layers with a head."""

    def model_fn(features: Features, labels: PyTree, mode: str, config: RunConfig) -> EstimatorSpec:
        part = build_part("dnn", lambda: layers.logits(features, mode, head.logits_dimension))
        return head.create_estimator_spec(
            features=features,
            mode=mode,
            labels=labels,
            logits=part.logits,
            optimizer=create_optimizer(optimizer) if mode == ModeKeys.TRAIN else None,
            trainable_variables=part.variables,
        )

    return model_fn


class DNNEstimator(Estimator):
    """A model of fully connected layers with a head.

    Args:
        head: A head of `lockstep.estimator`, or a custom one.
        hidden_units: Sizes of the hidden layers.
        feature_columns: Dense feature columns.
        model_dir: The directory of checkpoints and event files.
        optimizer: An optimizer's name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with Keras' default learning
            rates), an optimizer of Keras, lockstep.estimator.train or optax, or a function that returns one.
        activation_fn: The activation of each hidden layer; `None` for none.
        dropout: The dropout rate of each hidden layer; `None` for no dropout.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.
        batch_norm: Whether to use batch normalization after each hidden layer.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.DNNEstimator.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Path | None = None,
        optimizer: OptimizerLike = "Adagrad",
        activation_fn: Activation = jax.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart | None = None,
        batch_norm: bool = False,
    ) -> None:
        layers = Layers.create(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        model_fn = dnn_model_fn(head, layers, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNClassifier(Estimator):
    """A classifier of fully connected layers.

    Args:
        hidden_units: Sizes of the hidden layers.
        feature_columns: Dense feature columns.
        model_dir: The directory of checkpoints and event files.
        n_classes: Number of classes.
        weight_column: The feature of example weights: its name, or a numeric column.
        label_vocabulary: Labels as text, in the order of the classes; `None` for integer labels.
        optimizer: See `DNNEstimator`.
        activation_fn: The activation of each hidden layer; `None` for none.
        dropout: The dropout rate of each hidden layer; `None` for no dropout.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.
        loss_reduction: The reduction of the examples' losses.
        batch_norm: Whether to use batch normalization after each hidden layer.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.DNNClassifier.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Path | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: OptimizerLike = "Adagrad",
        activation_fn: Activation = jax.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        layers = Layers.create(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        model_fn = dnn_model_fn(head, layers, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNRegressor(Estimator):
    """A regressor of fully connected layers.

    Args:
        hidden_units: Sizes of the hidden layers.
        feature_columns: Dense feature columns.
        model_dir: The directory of checkpoints and event files.
        label_dimension: Number of labels per example.
        weight_column: The feature of example weights: its name, or a numeric column.
        optimizer: See `DNNEstimator`.
        activation_fn: The activation of each hidden layer; `None` for none.
        dropout: The dropout rate of each hidden layer; `None` for no dropout.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.
        loss_reduction: The reduction of the examples' losses.
        batch_norm: Whether to use batch normalization after each hidden layer.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.DNNRegressor.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Path | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn | None = None,
        optimizer: OptimizerLike = "Adagrad",
        activation_fn: Activation = jax.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        layers = Layers.create(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        model_fn = dnn_model_fn(head, layers, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Iterable[int],
    feature_columns: Columns,
    activation_fn: Activation,
    dropout: float | None,
    input_layer_partitioner: None,
    batch_norm: bool,
) -> Callable[[Any, str], Any]:
    """Returns a function of features and mode that returns logits, (batch, units), for use in a model_fn.

    Args:
        units: Number of logits.
        hidden_units: Sizes of the hidden layers.
        feature_columns: Dense feature columns.
        activation_fn: The activation of each hidden layer; `None` for none.
        dropout: The dropout rate of each hidden layer; `None` for no dropout.
        input_layer_partitioner: `None` only: there are no parameter servers.
        batch_norm: Whether to use batch normalization after each hidden layer.

    Raises:
        ArgumentError: If an argument is invalid.
        UnsupportedError: For a partitioner.

    Source: tf.compat.v1.estimator.experimental.dnn_logit_fn_builder.
    """
    refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
    count = check_units(units)
    layers = Layers.create(hidden_units, feature_columns, activation_fn, dropout, batch_norm)

    def logit_fn(features: Features, mode: str) -> Any:
        return layers.logits(features, mode, count)

    return logit_fn


def check_units(units: Any) -> int:
    """Checks a number of logits.

    Raises:
        ArgumentError: If it is no integer of at least 1.
    """
    if not isinstance(units, (int, np.integer)) or units < 1:
        raise ArgumentError(f"units must be an integer from 1 up. Received: {units!r}.")
    return int(units)


def refuse_partitioner(name: str, partitioner: object) -> None:
    """Refuses an argument for partitioned variables.

    Raises:
        UnsupportedError: If it is not `None`.
    """
    if partitioner is not None:
        raise UnsupportedError(
            f"Variables are not divided among parameter servers. Received: {name}={partitioner!r}. Leave it out."
        )
