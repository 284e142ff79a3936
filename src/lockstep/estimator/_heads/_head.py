"""The base class of heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from lockstep._types import Array, Optimizer, PyTree, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import _keys
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.records import SummaryOp, group
from lockstep.estimator._model_fn.scope import current


class Head(ABC):
    """The head of a model: computes loss, predictions and metrics from logits.

    From logits (and labels) it computes predictions, the loss, metrics, and as a whole an `EstimatorSpec`. A head of
    a custom head defines the abstract members.

    Source: tf.estimator.Head.
    """

    @property
    @abstractmethod
    def name(self) -> str | None:
        """Returns the head's name, a suffix of its metrics and summaries, or `None`."""

    @property
    @abstractmethod
    def logits_dimension(self) -> int:
        """Returns the size of the logits' last dimension."""

    @property
    @abstractmethod
    def loss_reduction(self) -> str:
        """Returns the reduction of the examples' losses."""

    @abstractmethod
    def loss(
        self,
        labels: PyTree,
        logits: PyTree,
        features: PyTree | None = None,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Any:
        """Returns the loss: a float32 scalar.

        Args:
            labels: The input_fn's labels.
            logits: float32 (batch, logits_dimension).
            features: The features, for weights.
            mode: One of `ModeKeys`.
            regularization_losses: Scalars to be added.
        """

    @abstractmethod
    def predictions(self, logits: PyTree, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        """Returns predictions by name.

        Args:
            logits: float32 (batch, logits_dimension).
            keys: The keys to return; `None` for all.
        """

    @abstractmethod
    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Any]:
        """Returns new metrics of Keras by name.

        Args:
            regularization_losses: If given, there is a metric of their sum.
        """

    @abstractmethod
    def update_metrics(
        self,
        eval_metrics: dict[str, Any],
        features: PyTree,
        logits: PyTree,
        labels: PyTree,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        """Updates metrics by a batch, and returns them.

        Args:
            eval_metrics: The result of `metrics`.
            features: The features, for weights.
            logits: float32 (batch, logits_dimension).
            labels: The input_fn's labels.
            mode: One of `ModeKeys`.
            regularization_losses: See `metrics`.
        """

    def create_estimator_spec(
        self,
        features: PyTree,
        mode: str,
        logits: PyTree,
        labels: PyTree | None = None,
        optimizer: Optimizer | None = None,
        trainable_variables: Sequence[Any] | None = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> EstimatorSpec:
        """Creates the result of a model_fn.

        Args:
            features: The features, for weights.
            mode: One of `ModeKeys`.
            logits: float32 (batch, logits_dimension).
            labels: The input_fn's labels; not needed to predict.
            optimizer: An optimizer, see `lockstep.estimator.train.minimize`.
            trainable_variables: The variables to train; `None` for all trainable ones.
            train_op_fn: A function of the loss that returns a train_op, in place of an optimizer.
            update_ops: Further train_ops.
            regularization_losses: Scalars that are added to the loss.

        Raises:
            ArgumentError: If labels or logits do not fit, or there is not exactly one of optimizer and train_op_fn.
        """
        # Predictions are computed in all modes: evaluation metrics and hooks read them; XLA drops unused ones.
        predictions = self.predictions(logits)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=predictions, export_outputs=self.export_outputs(predictions))
        extra: dict[str, Any] = {"regularization_losses": regularization_losses}
        loss = self.loss(labels, logits, features=features, mode=mode, **extra)
        if mode == ModeKeys.EVAL:
            updated = self.update_metrics(self.metrics(**extra), features, logits, labels, **extra)
            return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=updated)
        # The Estimator itself adds a summary "loss".
        if self.key(_keys.LOSS) != _keys.LOSS:
            add_scalar(self.key(_keys.LOSS), loss)
        if regularization_losses is not None:
            add_scalar(self.key(_keys.LOSS_REGULARIZATION), total(regularization_losses))
        train_op = self.train_op(loss, optimizer, trainable_variables, train_op_fn, update_ops)
        return EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of a saved model, by signature."""
        from lockstep.estimator._export.outputs import PredictOutput

        # The default signature beside its name, so that a client may leave the name out.
        output = PredictOutput(predictions)
        return {_keys.DEFAULT_SIGNATURE: output, _keys.PREDICT_SIGNATURE: output}

    def train_op(
        self,
        loss: Tensor,
        optimizer: Optimizer,
        trainable_variables: Sequence[Any] | None,
        train_op_fn: Callable[[Any], Any] | None,
        update_ops: Sequence[Any] | None,
    ) -> Any:
        """Returns the training operation; see `create_estimator_spec`."""
        if (optimizer is None) == (train_op_fn is None):
            raise ArgumentError(
                "Training needs exactly one of optimizer and train_op_fn. Received: "
                f"{'neither' if optimizer is None else 'both'}. Pass an optimizer to create_estimator_spec."
            )
        # TensorFlow's rule: a single variable, or a set without an order, is refused rather than wrapped.
        for name, value in (("trainable_variables", trainable_variables), ("update_ops", update_ops)):
            if value is not None and not isinstance(value, (list, tuple)):
                raise ArgumentError(f"{name} must be a list or a tuple. Received: {value!r}.")
        # `group` runs them in this order, with gradients at the same values of the variables.
        minimize = train_op_fn or (lambda loss: minimize_loss(loss, optimizer, trainable_variables))
        return group(minimize(loss), *(update_ops or ()))

    def key(self, name: str) -> str:
        """Returns the name of a metric or summary."""
        return f"{name}/{self.name}" if self.name else name


def minimize_loss(loss: Tensor, optimizer: Optimizer, variables: Sequence[Any] | None) -> Any:
    """Returns the training operation that minimizes a loss and increments the global step."""
    # Imported late: `train` is not needed to predict.
    from lockstep.estimator.train import get_global_step, minimize

    # tf.estimator.Head passes the global step, so that an optimizer of version 1 counts steps, too.
    return minimize(loss, optimizer, var_list=variables, global_step=get_global_step())


def add_scalar(tag: str, value: Array) -> None:
    """Adds a scalar summary; outside of a model_fn, does nothing."""
    # Heads also work outside of a model_fn, in programs' own loops and tests.
    scope = current()
    if scope is not None:
        scope.add_summary(SummaryOp("scalar", tag, value))


def total(losses: Sequence[Any]) -> Any:
    """Returns the sum of losses."""
    return sum(losses[1:], jnp.asarray(losses[0])) if losses else jnp.zeros(())


def select_keys(keys: Sequence[Any] | None, known: Sequence[Any]) -> Sequence[Any]:
    """Returns the keys of predictions to compute; all by default."""
    unknown = [key for key in keys or () if key not in known]
    if unknown:
        raise ArgumentError(
            f"The predictions of this head are {', '.join(known)}. Received: {', '.join(map(str, unknown))}."
        )
    return keys or known
