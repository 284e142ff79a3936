"""Estimators of fully connected layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._canned._optimizers import optimizer_of
from lockstep.estimator._canned._parts import Layers, part
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._multi_class import classifier_head
from lockstep.estimator._heads._reduction import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig

Columns = Iterable[Any]


def dnn_model_fn(head: Head, layers: Layers, optimizer: Any) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of fully connected layers under a head."""

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        found = part("dnn", lambda: layers.logits(features, mode, head.logits_dimension))
        return head.create_estimator_spec(
            features=features,
            mode=mode,
            labels=labels,
            logits=found.logits,
            optimizer=optimizer_of(optimizer) if mode == ModeKeys.TRAIN else None,
            trainable_variables=found.variables,
        )

    return model_fn


class DNNEstimator(Estimator):
    """Fully connected layers under a head.

    Args:
        head: One of `lockstep.estimator`'s, or one's own.
        hidden_units: The sizes of the hidden layers.
        feature_columns: Columns that give numbers.
        model_dir: Where checkpoints and event files are kept.
        optimizer: Its name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with Keras' default learning rates), an
            optimizer of Keras, lockstep.train or optax, or a function that returns such.
        activation_fn: Applied behind each hidden layer; `None` for nothing.
        dropout: Which part of each hidden layer is left out in training.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.
        batch_norm: Whether each hidden layer is normalised over the batch.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.DNNEstimator.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = jax.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
    ) -> None:
        layers = Layers.checked(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        model_fn = dnn_model_fn(head, layers, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNClassifier(Estimator):
    """Fully connected layers that tell classes.

    Args:
        hidden_units: The sizes of the hidden layers.
        feature_columns: Columns that give numbers.
        model_dir: Where checkpoints and event files are kept.
        n_classes: How many classes.
        weight_column: The name of the feature of weights, or a numeric column.
        label_vocabulary: The words that labels are, in the order of the classes; `None` for integers.
        optimizer: As of `DNNEstimator`.
        activation_fn: Applied behind each hidden layer; `None` for nothing.
        dropout: Which part of each hidden layer is left out in training.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.
        loss_reduction: How the losses of examples become one.
        batch_norm: Whether each hidden layer is normalised over the batch.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.DNNClassifier.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = jax.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        layers = Layers.checked(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        model_fn = dnn_model_fn(head, layers, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNRegressor(Estimator):
    """Fully connected layers that predict numbers.

    Args:
        hidden_units: The sizes of the hidden layers.
        feature_columns: Columns that give numbers.
        model_dir: Where checkpoints and event files are kept.
        label_dimension: How many numbers for each example.
        weight_column: The name of the feature of weights, or a numeric column.
        optimizer: As of `DNNEstimator`.
        activation_fn: Applied behind each hidden layer; `None` for nothing.
        dropout: Which part of each hidden layer is left out in training.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.
        loss_reduction: How the losses of examples become one.
        batch_norm: Whether each hidden layer is normalised over the batch.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.DNNRegressor.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = jax.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        layers = Layers.checked(hidden_units, feature_columns, activation_fn, dropout, batch_norm)
        model_fn = dnn_model_fn(head, layers, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def dnn_logit_fn_builder(
    units: Any,
    hidden_units: Iterable[int],
    feature_columns: Columns,
    activation_fn: Any,
    dropout: float | None,
    input_layer_partitioner: None,
    batch_norm: bool,
) -> Callable[[Any, str], Any]:
    """Returns a function of features and mode that returns logits, (batch, units), for use inside of a model_fn.

    Args:
        units: How many logits.
        hidden_units: The sizes of the hidden layers.
        feature_columns: Columns that give numbers.
        activation_fn: Applied behind each hidden layer; `None` for nothing.
        dropout: Which part of each hidden layer is left out in training.
        input_layer_partitioner: `None`: variables are not divided among parameter servers.
        batch_norm: Whether each hidden layer is normalised over the batch.

    Raises:
        ArgumentError: If an argument is wrong.
        UnsupportedError: If there is a partitioner.

    Source: tf.compat.v1.estimator.experimental.dnn_logit_fn_builder.
    """
    refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
    count = checked_units(units)
    layers = Layers.checked(hidden_units, feature_columns, activation_fn, dropout, batch_norm)

    def logit_fn(features: Any, mode: str) -> Any:
        return layers.logits(features, mode, count)

    return logit_fn


def checked_units(units: Any) -> int:
    """Returns how many logits there are.

    Raises:
        ArgumentError: If it is no integer from 1 up.
    """
    if not isinstance(units, (int, np.integer)) or units < 1:
        raise ArgumentError(f"units must be an integer from 1 up. Received: {units!r}.")
    return int(units)


def refuse_partitioner(name: str, partitioner: Any) -> None:
    """Refuses partitioners.

    Raises:
        UnsupportedError: If there is one.
    """
    if partitioner is not None:
        raise UnsupportedError(
            f"Variables are not divided among parameter servers. Received: {name}={partitioner!r}. Leave it out."
        )
