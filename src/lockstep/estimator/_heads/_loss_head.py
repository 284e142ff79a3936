"""Heads with a loss for each example, weights, and a table of metrics."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._heads import _inputs, _keys
from lockstep.estimator._heads._head import Head, select_keys, total
from lockstep.estimator._heads._inputs import WeightColumn
from lockstep.estimator._heads._metrics import HeadMetric, metric_name, update
from lockstep.estimator._model_fn.scope import current

SUM_OVER_BATCH_SIZE = "sum_over_batch_size"

# The divisor of the losses' sum, from the weights, by TensorFlow's names: those of tf.losses.Reduction, and of
# tf.compat.v1.losses.Reduction, which canned estimators of version 1 pass. "none" is missing: a step needs one number.
_REDUCTIONS: dict[str, Callable[[jax.Array], Any]] = {
    **dict.fromkeys(("auto", SUM_OVER_BATCH_SIZE, "weighted_sum_over_batch_size"), lambda weights: weights.size),
    **dict.fromkeys(("sum", "weighted_sum"), lambda weights: 1),
    "weighted_mean": jnp.sum,
    "weighted_sum_by_nonzero_weights": lambda weights: jnp.sum(weights != 0),
}


class LossHead(Head):
    """A head of one loss; `loss_fn` computes it from labels and logits, `None` stands for the head's own."""

    # Whether there may be a weight for each logit; and how many losses an example has, `None` for one for each logit.
    _has_logit_weights = False
    _losses_per_example: int | None = 1

    def __init__(
        self,
        logits_dimension: int,
        weight_column: WeightColumn,
        loss_reduction: Any,
        loss_fn: Callable[..., Any] | None,
        name: str | None,
    ) -> None:
        self._logits_dimension = logits_dimension
        self._weight_column = _inputs.check_weight_column(weight_column)
        if loss_reduction not in tuple(_REDUCTIONS):
            raise ArgumentError(
                f"loss_reduction must be one of {', '.join(_REDUCTIONS)}. Received: {loss_reduction!r}."
            )
        self._loss_reduction: str = loss_reduction
        # TensorFlow passes a loss_fn the arguments that it names.
        names = set(inspect.signature(loss_fn).parameters) if callable(loss_fn) else set[str]()
        self._loss_fn_extras = names - {"labels", "logits"}
        if loss_fn is not None and (
            not names >= {"labels", "logits"} or self._loss_fn_extras - {"features", "loss_reduction"}
        ):
            raise ArgumentError(
                "loss_fn must be a function of labels and logits, and maybe features and loss_reduction. Received: "
                f"{loss_fn!r} with the arguments {sorted(names)}."
            )
        self._loss_fn = loss_fn
        self._name = name

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def logits_dimension(self) -> int:
        return self._logits_dimension

    @property
    def loss_reduction(self) -> str:
        return self._loss_reduction

    def loss(
        self,
        labels: PyTree,
        logits: PyTree,
        features: PyTree | None = None,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> Any:
        scores = _inputs.check_logits(logits, self.logits_dimension)
        losses, weights = self._weighted_losses(self._labels(labels, scores), scores, features)
        # As tf.losses.compute_weighted_loss: sums and counts are of the weights as broadcast to the losses.
        # The step program sums losses that are sums over replicas, and averages those that are means.
        scope = current()
        if scope is not None:
            scope.loss_reduction = self.loss_reduction
        weights = jnp.ones_like(losses) if weights is None else jnp.broadcast_to(weights, losses.shape)
        divisor = _REDUCTIONS[self.loss_reduction](weights)
        loss = jnp.sum(losses * weights)
        # Divisors of Python are known to be above 0; a batch whose weights are all 0 has a loss of 0, as in TensorFlow.
        if isinstance(divisor, int):
            loss = loss / divisor
        else:
            loss = jnp.where(divisor > 0, loss / jnp.maximum(divisor, jnp.finfo(losses.dtype).tiny), 0)
        return loss if regularization_losses is None else loss + total(regularization_losses)

    def predictions(self, logits: PyTree, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        every = self._predict(_inputs.check_logits(logits, self.logits_dimension))
        return {key: every[key] for key in select_keys(keys, list(every))}

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Any]:
        # The mean of the losses over the evaluation; "loss" itself is the Estimator's mean over batches.
        names = [_keys.LOSS_MEAN] + ([] if regularization_losses is None else [_keys.LOSS_REGULARIZATION])
        metrics = {name: keras.metrics.Mean(name=metric_name(name)) for name in names}
        metrics |= {name: metric.create() for name, metric in self._metric_table().items()}
        return {self.key(name): metric for name, metric in metrics.items()}

    def update_metrics(
        self,
        eval_metrics: dict[str, Any],
        features: PyTree,
        logits: PyTree,
        labels: PyTree,
        mode: str | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        scores = _inputs.check_logits(logits, self.logits_dimension)
        numbers = self._labels(labels, scores)
        losses, weights = self._weighted_losses(numbers, scores, features)
        # "average_loss" is the mean over all examples, whatever the reduction, and weighted by their weights.
        update(eval_metrics[self.key(_keys.LOSS_MEAN)], losses, weights=weights)
        if regularization_losses is not None:
            update(eval_metrics[self.key(_keys.LOSS_REGULARIZATION)], total(regularization_losses))
        # Once for all metrics: those of classes and those of scores share a softmax.
        values = self._metric_values(numbers, scores)
        for name, metric in self._metric_table().items():
            update(eval_metrics[self.key(name)], *(values[key] for key in metric.inputs), weights=weights)
        return eval_metrics

    def _weighted_losses(self, labels: jax.Array, logits: jax.Array, features: PyTree) -> tuple[jax.Array, Any]:
        weights = _inputs.weights_of(features, self._weight_column, logits, self._has_logit_weights)
        if self._loss_fn is None:
            return self._losses(labels, logits), weights
        available = {"features": features, "loss_reduction": self.loss_reduction}
        extras = {name: available[name] for name in self._loss_fn_extras}
        losses = jnp.asarray(self._loss_fn(labels=labels, logits=logits, **extras))
        expected = (*logits.shape[:-1], self._losses_per_example or self.logits_dimension)
        if losses.shape != expected:
            raise ArgumentError(
                f"loss_fn must return a loss for each example, of shape {expected}. Received: {losses.shape}. Do not "
                "reduce it: the head does."
            )
        return losses.astype(jnp.float32), weights

    @abstractmethod
    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        """Returns labels as numbers, in the shape of the logits but for the last dimension."""

    @abstractmethod
    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        """Returns the losses of the examples."""

    @abstractmethod
    def _predict(self, logits: jax.Array) -> dict[str, Any]:
        """Returns all predictions by name."""

    @abstractmethod
    def _metric_table(self) -> dict[str, HeadMetric]:
        """Returns the metrics besides those of the loss, by name, in the order in which they are shown."""

    @abstractmethod
    def _metric_values(self, labels: jax.Array, logits: jax.Array) -> Mapping[Hashable, jax.Array]:
        """Returns a batch's values for the metrics' inputs."""


def sigmoid_cross_entropy(labels: jax.Array, logits: jax.Array) -> jax.Array:
    """Returns the loss of each logit for labels from 0 to 1."""
    # Not by abs and maximum: JAX takes their gradients at 0, where training often starts, from different sides.
    is_positive = logits >= 0
    above, below = jnp.where(is_positive, logits, 0), jnp.where(is_positive, -logits, logits)
    return above - logits * labels + jnp.log1p(jnp.exp(below))
