"""Canned estimators of fully connected layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from lockstep.estimator._canned._parts import (
    Activation,
    Columns,
    Layers,
    OptimizerLike,
    Path,
    WarmStart,
    WeightColumn,
    check_units,
    divided_by,
    part_model_fn,
)
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._classifiers import classifier_head
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE
from lockstep.estimator._run_config import RunConfig


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
        # Without a learning rate of its own: TensorFlow leaves a named optimizer at Keras' default here.
        model_fn = part_model_fn("dnn", head, layers.logits, optimizer)
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
        model_fn = part_model_fn("dnn", head, layers.logits, optimizer)
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
        model_fn = part_model_fn("dnn", head, layers.logits, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Iterable[int],
    feature_columns: Columns,
    activation_fn: Activation,
    dropout: float | None,
    input_layer_partitioner: Callable[..., Any] | None,
    batch_norm: bool,
) -> Callable[[Any, str], Any]:
    """Returns a function of features and mode that returns logits, (batch, units), for use in a model_fn.

    Args:
        units: Number of logits.
        hidden_units: Sizes of the hidden layers.
        feature_columns: Dense feature columns.
        activation_fn: The activation of each hidden layer; `None` for none.
        dropout: The dropout rate of each hidden layer; `None` for no dropout.
        input_layer_partitioner: Into how many ranges of rows parameter servers divide tables: a function of shape and
            dtype, or `None`.
        batch_norm: Whether to use batch normalization after each hidden layer.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.compat.v1.estimator.experimental.dnn_logit_fn_builder.
    """
    # Without a head and a name scope: the model_fn that calls the function names its layers.
    count = check_units(units)
    layers = Layers.create(hidden_units, feature_columns, activation_fn, dropout, batch_norm)

    def logits(features: Any, mode: str) -> Any:
        return layers.logits(features, mode, count)

    return divided_by("input_layer_partitioner", input_layer_partitioner, logits)
