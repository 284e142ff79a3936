"""Canned wide-and-deep estimators: a linear model and fully connected layers, trained together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from lockstep._types import PyTree, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._canned import _summaries
from lockstep.estimator._canned._dnn import Activation, Columns, OptimizerLike, Path, WarmStart, WeightColumn
from lockstep.estimator._canned._optimizers import create_optimizer
from lockstep.estimator._canned._parts import Features, Layers, LinearModel, Part, build_part
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._classifiers import classifier_head
from lockstep.estimator._heads._head import minimize_loss
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.records import GroupOp, TrainOp, group
from lockstep.estimator._run_config import RunConfig

# TensorFlow's learning rates of optimizers given by name.
_DNN_LEARNING_RATE = 0.001
_LINEAR_LEARNING_RATE = 0.005


@dataclass(frozen=True)
class WideAndDeep:
    """A linear model and layers, either of which may be `None`, and their optimizers."""

    linear: LinearModel | None
    linear_optimizer: OptimizerLike
    layers: Layers | None
    dnn_optimizer: OptimizerLike

    @classmethod
    def create(
        cls,
        linear_feature_columns: Columns | None,
        linear_optimizer: OptimizerLike,
        linear_sparse_combiner: str,
        dnn_feature_columns: Columns | None,
        dnn_optimizer: OptimizerLike,
        dnn_hidden_units: Iterable[int] | None,
        dnn_activation_fn: Activation,
        dnn_dropout: float | None,
        batch_norm: bool,
    ) -> WideAndDeep:
        """Checks arguments and creates both parts.

        Raises:
            ArgumentError: If an argument is invalid, or there are no columns.
        """
        wide, deep = _to_list(linear_feature_columns), _to_list(dnn_feature_columns)
        if not wide and not deep:
            raise ArgumentError(
                "Either linear_feature_columns or dnn_feature_columns must be defined. Received: neither."
            )
        if deep and not dnn_hidden_units:
            raise ArgumentError(
                "dnn_hidden_units must be defined when dnn_feature_columns is specified. Received: "
                f"{dnn_hidden_units!r}. Example: [64, 32]."
            )
        linear = LinearModel.create(wide, linear_sparse_combiner) if wide else None
        layers = None
        if deep:
            layers = Layers.create(dnn_hidden_units or (), deep, dnn_activation_fn, dnn_dropout, batch_norm)
        return cls(linear, linear_optimizer, layers, dnn_optimizer)

    def build(self, features: Features, mode: str, units: int) -> tuple[Part | None, Part | None]:
        """Builds the linear part and the deep part in a model_fn."""
        layers, linear = self.layers, self.linear
        # The deep part first: variables are numbered in this order, as in TensorFlow.
        deep = None if layers is None else build_part("dnn", lambda: layers.logits(features, mode, units))
        wide = None if linear is None else build_part("linear", lambda: linear.logits(features, units))
        if wide is not None:
            _summaries.add_layer(wide.logits, "linear")
        return wide, deep

    def train_op(self, loss: Tensor, wide: Part | None, deep: Part | None, reduction: str) -> GroupOp:
        """Returns the training operations of both parts, grouped."""
        updates: list[TrainOp] = []
        if deep is not None:
            optimizer = create_optimizer(self.dnn_optimizer, _DNN_LEARNING_RATE)
            updates.append(minimize_loss(loss, optimizer, deep.variables))
        if wide is not None and self.linear is not None:
            rate = min(_LINEAR_LEARNING_RATE, len(self.linear.feature_columns) ** -0.5)
            optimizer = create_optimizer(self.linear_optimizer, rate)
            updates.append(minimize_loss(loss, optimizer, wide.variables))
        # Each would increment the global step; TensorFlow increments it once, after both.
        return group(*updates[:1], *(replace(op, counts=False) for op in updates[1:]))


def _to_list(columns: Columns | None) -> list[Any]:
    return [] if columns is None else list(columns)


def combined_model_fn(head: Head, model: WideAndDeep) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of both parts with a head."""

    def model_fn(features: Features, labels: PyTree, mode: str, config: RunConfig) -> EstimatorSpec:
        wide, deep = model.build(features, mode, head.logits_dimension)
        logits = [part.logits for part in (deep, wide) if part is not None]
        train: Callable[[Any], Any] = lambda loss: model.train_op(loss, wide, deep, head.loss_reduction)  # noqa: E731
        return head.create_estimator_spec(
            features=features,
            mode=mode,
            labels=labels,
            logits=sum(logits[1:], logits[0]),
            train_op_fn=train if mode == ModeKeys.TRAIN else None,
        )

    return model_fn


class DNNLinearCombinedEstimator(Estimator):
    """A wide-and-deep model with a head: a linear model and fully connected layers.

    Args:
        head: A head of `lockstep.estimator`, or a custom one.
        model_dir: The directory of checkpoints and event files.
        linear_feature_columns: Dense or categorical feature columns of the linear model.
        linear_optimizer: An optimizer's name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with the learning rate
            min(0.005, 1 / sqrt(number of columns))), an optimizer of Keras, lockstep.estimator.train or optax, or a
            function that returns one.
        dnn_feature_columns: Dense feature columns of the fully connected layers.
        dnn_optimizer: As `linear_optimizer`; by its name, with a learning rate of 0.001.
        dnn_hidden_units: Sizes of the hidden layers.
        dnn_activation_fn: The activation of each hidden layer; `None` for none.
        dnn_dropout: The dropout rate of each hidden layer; `None` for no dropout.
        config: A `RunConfig`.
        batch_norm: Whether to use batch normalization after each hidden layer.
        linear_sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is invalid, or there are no columns.

    Source: tf.estimator.DNNLinearCombinedEstimator.
    """

    def __init__(
        self,
        head: Head,
        model_dir: Path | None = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: OptimizerLike = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: OptimizerLike = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Activation = jax.nn.relu,
        dnn_dropout: float | None = None,
        config: RunConfig | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        model = WideAndDeep.create(
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            batch_norm,
        )
        super().__init__(combined_model_fn(head, model), model_dir, config)


class DNNLinearCombinedClassifier(Estimator):
    """A wide-and-deep classifier: a linear model and fully connected layers.

    Args:
        model_dir: The directory of checkpoints and event files.
        linear_feature_columns: Dense or categorical feature columns of the linear model.
        linear_optimizer: See `DNNLinearCombinedEstimator`.
        dnn_feature_columns: Dense feature columns of the fully connected layers.
        dnn_optimizer: See `DNNLinearCombinedEstimator`.
        dnn_hidden_units: Sizes of the hidden layers.
        dnn_activation_fn: The activation of each hidden layer; `None` for none.
        dnn_dropout: The dropout rate of each hidden layer; `None` for no dropout.
        n_classes: Number of classes.
        weight_column: The feature of example weights: its name, or a numeric column.
        label_vocabulary: Labels as text, in the order of the classes; `None` for integer labels.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.
        loss_reduction: The reduction of the examples' losses.
        batch_norm: Whether to use batch normalization after each hidden layer.
        linear_sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is invalid, or there are no columns.

    Source: tf.estimator.DNNLinearCombinedClassifier.
    """

    def __init__(
        self,
        model_dir: Path | None = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: OptimizerLike = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: OptimizerLike = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Activation = jax.nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        model = WideAndDeep.create(
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            batch_norm,
        )
        super().__init__(combined_model_fn(head, model), model_dir, config, warm_start_from=warm_start_from)


class DNNLinearCombinedRegressor(Estimator):
    """A wide-and-deep regressor: a linear model and fully connected layers.

    Args:
        model_dir: The directory of checkpoints and event files.
        linear_feature_columns: Dense or categorical feature columns of the linear model.
        linear_optimizer: See `DNNLinearCombinedEstimator`.
        dnn_feature_columns: Dense feature columns of the fully connected layers.
        dnn_optimizer: See `DNNLinearCombinedEstimator`.
        dnn_hidden_units: Sizes of the hidden layers.
        dnn_activation_fn: The activation of each hidden layer; `None` for none.
        dnn_dropout: The dropout rate of each hidden layer; `None` for no dropout.
        label_dimension: Number of labels per example.
        weight_column: The feature of example weights: its name, or a numeric column.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.
        loss_reduction: The reduction of the examples' losses.
        batch_norm: Whether to use batch normalization after each hidden layer.
        linear_sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is invalid, or there are no columns.

    Source: tf.estimator.DNNLinearCombinedRegressor.
    """

    def __init__(
        self,
        model_dir: Path | None = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: OptimizerLike = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: OptimizerLike = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Activation = jax.nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        model = WideAndDeep.create(
            linear_feature_columns,
            linear_optimizer,
            linear_sparse_combiner,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            batch_norm,
        )
        super().__init__(combined_model_fn(head, model), model_dir, config, warm_start_from=warm_start_from)
