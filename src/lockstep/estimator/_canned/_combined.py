"""Estimators of a linear model and fully connected layers together: "wide and deep"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from lockstep._model_fn.records import group
from lockstep.errors import ArgumentError
from lockstep.estimator._canned import _summaries
from lockstep.estimator._canned._dnn import Columns
from lockstep.estimator._canned._optimizers import optimizer_of
from lockstep.estimator._canned._parts import Layers, Part, Weights, part
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._head import minimized
from lockstep.estimator._heads._multi_class import classifier_head
from lockstep.estimator._heads._reduction import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig

# TensorFlow's: of optimizers given by their names.
_DNN_LEARNING_RATE = 0.001
_LINEAR_LEARNING_RATE = 0.005


@dataclass(frozen=True)
class Combined:
    """The two parts of a model, `None` where there is none, and how they are trained."""

    weights: Weights | None
    linear_optimizer: Any
    layers: Layers | None
    dnn_optimizer: Any

    @classmethod
    def checked(
        cls,
        linear_feature_columns: Any,
        linear_optimizer: Any,
        linear_sparse_combiner: str,
        dnn_feature_columns: Any,
        dnn_optimizer: Any,
        dnn_hidden_units: Any,
        dnn_activation_fn: Any,
        dnn_dropout: float | None,
        batch_norm: bool,
    ) -> Combined:
        """Returns both parts.

        Raises:
            ArgumentError: If an argument is wrong, or there is neither part.
        """
        wide, deep = _listed(linear_feature_columns), _listed(dnn_feature_columns)
        if not wide and not deep:
            raise ArgumentError(
                "Either linear_feature_columns or dnn_feature_columns must be defined. Received: neither."
            )
        if deep and not dnn_hidden_units:
            raise ArgumentError(
                "dnn_hidden_units must be defined when dnn_feature_columns is specified. Received: "
                f"{dnn_hidden_units!r}. Example: [64, 32]."
            )
        weights = Weights.checked(wide, linear_sparse_combiner) if wide else None
        layers = Layers.checked(dnn_hidden_units, deep, dnn_activation_fn, dnn_dropout, batch_norm) if deep else None
        return cls(weights, linear_optimizer, layers, dnn_optimizer)

    def parts(self, features: Any, mode: str, units: int) -> tuple[Part | None, Part | None]:
        """Computes the linear part and the layers."""
        layers, weights = self.layers, self.weights
        deep = None if layers is None else part("dnn", lambda: layers.logits(features, mode, units))
        wide = None if weights is None else part("linear", lambda: weights.logits(features, units))
        if wide is not None:
            _summaries.add_layer(wide.logits, "linear")
        return wide, deep

    def train_op(self, loss: Any, wide: Part | None, deep: Part | None, reduction: str) -> Any:
        """Returns the updates of both parts; together they count one step."""
        updates: list[Any] = []
        if deep is not None:
            optimizer = optimizer_of(self.dnn_optimizer, _DNN_LEARNING_RATE)
            updates.append(minimized(loss, optimizer, deep.variables))
        if wide is not None and self.weights is not None:
            rate = min(_LINEAR_LEARNING_RATE, len(self.weights.feature_columns) ** -0.5)
            optimizer = optimizer_of(self.linear_optimizer, rate)
            updates.append(minimized(loss, optimizer, wide.variables))
        return group(*updates[:1], *(replace(op, counts=False) for op in updates[1:]))


def _listed(columns: Any) -> list[Any]:
    return [] if columns is None else list(columns)


def combined_model_fn(head: Head, model: Combined) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of both parts under a head."""

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        wide, deep = model.parts(features, mode, head.logits_dimension)
        logits = [found.logits for found in (deep, wide) if found is not None]
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
    """A linear model and fully connected layers together, under a head.

    Args:
        head: One of `lockstep.estimator`'s, or one's own.
        model_dir: Where checkpoints and event files are kept.
        linear_feature_columns: Columns of numbers or categories, for the linear part.
        linear_optimizer: Its name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with the learning rate
            min(0.005, 1 / sqrt(number of columns))), an optimizer of Keras, lockstep.train or optax, or a function that
            returns such.
        dnn_feature_columns: Columns that give numbers, for the layers.
        dnn_optimizer: As `linear_optimizer`; by its name, with a learning rate of 0.001.
        dnn_hidden_units: The sizes of the hidden layers.
        dnn_activation_fn: Applied behind each hidden layer; `None` for nothing.
        dnn_dropout: Which part of each hidden layer is left out in training.
        config: A `RunConfig`.
        batch_norm: Whether each hidden layer is normalised over the batch.
        linear_sparse_combiner: How the weights of several categories of a column become one: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is wrong, or there are no columns.

    Source: tf.estimator.DNNLinearCombinedEstimator.
    """

    def __init__(
        self,
        head: Head,
        model_dir: Any = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Any = jax.nn.relu,
        dnn_dropout: float | None = None,
        config: RunConfig | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        model = Combined.checked(
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
    """A linear model and fully connected layers together, that tell classes.

    Args:
        model_dir: Where checkpoints and event files are kept.
        linear_feature_columns: Columns of numbers or categories, for the linear part.
        linear_optimizer: As of `DNNLinearCombinedEstimator`.
        dnn_feature_columns: Columns that give numbers, for the layers.
        dnn_optimizer: As of `DNNLinearCombinedEstimator`.
        dnn_hidden_units: The sizes of the hidden layers.
        dnn_activation_fn: Applied behind each hidden layer; `None` for nothing.
        dnn_dropout: Which part of each hidden layer is left out in training.
        n_classes: How many classes.
        weight_column: The name of the feature of weights, or a numeric column.
        label_vocabulary: The words that labels are, in the order of the classes; `None` for integers.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.
        loss_reduction: How the losses of examples become one.
        batch_norm: Whether each hidden layer is normalised over the batch.
        linear_sparse_combiner: How the weights of several categories of a column become one: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is wrong, or there are no columns.

    Source: tf.estimator.DNNLinearCombinedClassifier.
    """

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Any = jax.nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        model = Combined.checked(
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
    """A linear model and fully connected layers together, that predict numbers.

    Args:
        model_dir: Where checkpoints and event files are kept.
        linear_feature_columns: Columns of numbers or categories, for the linear part.
        linear_optimizer: As of `DNNLinearCombinedEstimator`.
        dnn_feature_columns: Columns that give numbers, for the layers.
        dnn_optimizer: As of `DNNLinearCombinedEstimator`.
        dnn_hidden_units: The sizes of the hidden layers.
        dnn_activation_fn: Applied behind each hidden layer; `None` for nothing.
        dnn_dropout: Which part of each hidden layer is left out in training.
        label_dimension: How many numbers for each example.
        weight_column: The name of the feature of weights, or a numeric column.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.
        loss_reduction: How the losses of examples become one.
        batch_norm: Whether each hidden layer is normalised over the batch.
        linear_sparse_combiner: How the weights of several categories of a column become one: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is wrong, or there are no columns.

    Source: tf.estimator.DNNLinearCombinedRegressor.
    """

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Any = jax.nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        model = Combined.checked(
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
