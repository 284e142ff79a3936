"""Canned wide-and-deep estimators: a linear model and fully connected layers, trained together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from lockstep._types import PyTree, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._canned._parts import (
    Activation,
    Columns,
    Features,
    Layers,
    LinearModel,
    OptimizerLike,
    Part,
    Path,
    WarmStart,
    WeightColumn,
    add_layer_summaries,
    build_part,
    create_optimizer,
)
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._classifiers import classifier_head
from lockstep.estimator._heads._head import minimize_loss
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.records import GroupOp, TrainOp, group
from lockstep.estimator._run_config import RunConfig


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
        linear: tuple[Columns | None, OptimizerLike, str],
        dnn: tuple[Columns | None, OptimizerLike, Iterable[int] | None, Activation, float | None, bool],
    ) -> WideAndDeep:
        """Checks arguments and creates both parts.

        `linear` are columns, optimizer and sparse_combiner; `dnn` columns, optimizer, hidden_units, activation_fn,
        dropout and batch_norm.
        """
        linear_columns, linear_optimizer, sparse_combiner = linear
        dnn_columns, dnn_optimizer, hidden_units, activation_fn, dropout, batch_norm = dnn
        # Lists, since generators are looked at twice. TensorFlow's order of checks: columns, then units.
        wide, deep = (list(columns or ()) for columns in (linear_columns, dnn_columns))
        if not wide and not deep:
            raise ArgumentError(
                "Either linear_feature_columns or dnn_feature_columns must be defined. Received: neither."
            )
        if deep and not hidden_units:
            raise ArgumentError(
                "dnn_hidden_units must be defined when dnn_feature_columns is specified. Received: "
                f"{hidden_units!r}. Example: [64, 32]."
            )
        model = LinearModel.create(wide, sparse_combiner) if wide else None
        layers = Layers.create(hidden_units, deep, activation_fn, dropout, batch_norm) if deep else None
        return cls(model, linear_optimizer, layers, dnn_optimizer)

    def model_fn(self, head: Head) -> Callable[..., EstimatorSpec]:
        """Returns the model_fn of both parts with a head."""

        def model_fn(features: Features, labels: PyTree, mode: str, config: RunConfig) -> EstimatorSpec:
            layers, linear, units = self.layers, self.linear, head.logits_dimension
            # The deep part first: variables are numbered in this order, as in TensorFlow.
            deep = None if layers is None else build_part("dnn", lambda: layers.logits(features, mode, units))
            wide = None if linear is None else build_part("linear", lambda: linear.logits(features, mode, units))
            if wide is not None:
                add_layer_summaries(wide.logits, "linear")
            logits = [part.logits for part in (deep, wide) if part is not None]
            # A function of the loss rather than an optimizer: each part has an optimizer for its own variables.
            train: Callable[[Any], Any] = lambda loss: self._train_op(loss, wide, deep)  # noqa: E731
            return head.create_estimator_spec(
                features=features,
                mode=mode,
                labels=labels,
                # Joint training (Cheng et al., 2016): one loss of the sum, not an ensemble of two.
                logits=sum(logits[1:], logits[0]),
                train_op_fn=train if mode == ModeKeys.TRAIN else None,
            )

        return model_fn

    def _train_op(self, loss: Tensor, wide: Part | None, deep: Part | None) -> GroupOp:
        """Returns the training operations of both parts, grouped."""
        updates: list[TrainOp] = []
        # 0.001 and 0.005 are TensorFlow's learning rates of optimizers given by name. The linear one is lowered with
        # the number of columns, by any name, unlike that of LinearEstimator.
        if deep is not None:
            optimizer = create_optimizer(self.dnn_optimizer, 0.001)
            updates.append(minimize_loss(loss, optimizer, deep.variables))
        if wide is not None and self.linear is not None:
            rate = min(0.005, len(self.linear.feature_columns) ** -0.5)
            optimizer = create_optimizer(self.linear_optimizer, rate)
            updates.append(minimize_loss(loss, optimizer, wide.variables))
        # Each would increment the global step; TensorFlow increments it once, after both.
        return group(*updates[:1], *(replace(op, counts=False) for op in updates[1:]))


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
            (linear_feature_columns, linear_optimizer, linear_sparse_combiner),
            (dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout, batch_norm),
        )
        super().__init__(model.model_fn(head), model_dir, config)


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
            (linear_feature_columns, linear_optimizer, linear_sparse_combiner),
            (dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout, batch_norm),
        )
        super().__init__(model.model_fn(head), model_dir, config, warm_start_from=warm_start_from)


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
            (linear_feature_columns, linear_optimizer, linear_sparse_combiner),
            (dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout, batch_norm),
        )
        super().__init__(model.model_fn(head), model_dir, config, warm_start_from=warm_start_from)
