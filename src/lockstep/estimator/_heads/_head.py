"""What all heads have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from lockstep._model_fn.records import SummaryOp, group
from lockstep._model_fn.scope import current
from lockstep.errors import ArgumentError
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import _keys
from lockstep.estimator._mode_keys import ModeKeys


class Head(ABC):
    """The top of a model: what logits mean.

    From logits (and labels) it computes predictions, the loss, metrics, and as a whole an `EstimatorSpec`. A head of
    one's own defines the abstract members.

    Source: tf.estimator.Head.
    """

    @property
    @abstractmethod
    def name(self) -> str | None:
        """Its name, which is put behind those of metrics and summaries, or `None`."""

    @property
    @abstractmethod
    def logits_dimension(self) -> int:
        """The size of the logits' last dimension."""

    @property
    @abstractmethod
    def loss_reduction(self) -> str:
        """How the losses of examples become one."""

    @abstractmethod
    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Any:
        """Returns the loss: a float32 scalar.

        Args:
            labels: As the input_fn gives them.
            logits: float32 (batch, logits_dimension).
            features: The features, for weights.
            mode: One of `ModeKeys`.
            regularization_losses: Scalars to be added.
        """

    @abstractmethod
    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        """Returns predictions by name.

        Args:
            logits: float32 (batch, logits_dimension).
            keys: Of which names; `None` for all.
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
        features: Any,
        logits: Any,
        labels: Any,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        """Updates metrics by a batch, and returns them.

        Args:
            eval_metrics: What `metrics` returned.
            features: The features, for weights.
            logits: float32 (batch, logits_dimension).
            labels: As the input_fn gives them.
            mode: One of `ModeKeys`.
            regularization_losses: As given to `metrics`.
        """

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        trainable_variables: Sequence[Any] | None = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> EstimatorSpec:
        """Returns what a model_fn returns.

        Args:
            features: The features, for weights.
            mode: One of `ModeKeys`.
            logits: float32 (batch, logits_dimension).
            labels: As the input_fn gives them; not needed to predict.
            optimizer: To train with; anything that `lockstep.train.minimize` takes.
            trainable_variables: What it trains; `None` for all trainable variables.
            train_op_fn: Instead of an optimizer: a function of the loss that returns a train_op.
            update_ops: Further train_ops.
            regularization_losses: Scalars that are added to the loss.

        Raises:
            ArgumentError: If labels or logits do not fit, or there is not exactly one of optimizer and train_op_fn.
        """
        predictions = self.predictions(logits)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=predictions, export_outputs=self.export_outputs(predictions))
        extra: dict[str, Any] = {"regularization_losses": regularization_losses}
        loss = self.loss(labels, logits, features=features, mode=mode, **extra)
        if mode == ModeKeys.EVAL:
            updated = self.update_metrics(self.metrics(**extra), features, logits, labels, **extra)
            return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=updated)
        self._summarise(loss, regularization_losses)
        train_op = self.train_op(loss, optimizer, trainable_variables, train_op_fn, update_ops)
        return EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of a saved model by the names of their signatures."""
        from lockstep.estimator._export.outputs import PredictOutput

        output = PredictOutput(predictions)
        return {_keys.DEFAULT_SIGNATURE: output, _keys.PREDICT_SIGNATURE: output}

    def train_op(
        self,
        loss: Any,
        optimizer: Any,
        trainable_variables: Sequence[Any] | None,
        train_op_fn: Callable[[Any], Any] | None,
        update_ops: Sequence[Any] | None,
    ) -> Any:
        """Returns the update of a training step; see `create_estimator_spec`."""
        if (optimizer is None) == (train_op_fn is None):
            raise ArgumentError(
                "Training needs exactly one of optimizer and train_op_fn. Received: "
                f"{'neither' if optimizer is None else 'both'}. Pass an optimizer to create_estimator_spec."
            )
        for name, given in (("trainable_variables", trainable_variables), ("update_ops", update_ops)):
            if given is not None and not isinstance(given, (list, tuple)):
                raise ArgumentError(f"{name} must be a list or a tuple. Received: {given!r}.")
        if train_op_fn is not None:
            return group(train_op_fn(loss), *(update_ops or ()))
        return group(minimized(loss, optimizer, trainable_variables), *(update_ops or ()))

    def _summarise(self, loss: Any, regularization_losses: Sequence[Any] | None) -> None:
        if self.key(_keys.LOSS) != _keys.LOSS:  # Under that name an Estimator adds it itself.
            add_scalar(self.key(_keys.LOSS), loss)
        if regularization_losses is not None:
            add_scalar(self.key(_keys.LOSS_REGULARIZATION), total(regularization_losses))

    def key(self, name: str) -> str:
        """Returns what a metric or summary is called."""
        return f"{name}/{self.name}" if self.name else name


def minimized(loss: Any, optimizer: Any, variables: Sequence[Any] | None) -> Any:
    """Returns the update that makes a loss smaller, and counts the step."""
    from lockstep.train import get_global_step, minimize

    return minimize(loss, optimizer, var_list=variables, global_step=get_global_step())


def add_scalar(tag: str, value: Any) -> None:
    """Adds a number for TensorBoard, if a model_fn is running."""
    scope = current()
    if scope is not None:
        scope.add_summary(SummaryOp("scalar", tag, value))


def total(losses: Sequence[Any]) -> Any:
    """Returns the sum of losses."""
    return sum(losses[1:], jnp.asarray(losses[0])) if losses else jnp.zeros(())


def checked_keys(keys: Sequence[Any] | None, known: Sequence[Any]) -> Sequence[Any]:
    """Returns the names of predictions; all by default.

    Raises:
        ArgumentError: If there is no such prediction.
    """
    unknown = [key for key in keys or () if key not in known]
    if unknown:
        raise ArgumentError(
            f"The predictions of this head are {', '.join(known)}. Received: {', '.join(map(str, unknown))}."
        )
    return keys or known
