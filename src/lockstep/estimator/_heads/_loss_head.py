"""Heads with a loss for each example, weights, and metrics of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._types import PyTree
from lockstep.estimator._heads import _custom_loss, _inputs, _keys
from lockstep.estimator._heads._head import Head, total
from lockstep.estimator._heads._inputs import WeightColumn
from lockstep.estimator._heads._metrics import update
from lockstep.estimator._heads._reduction import check_reduction, reduce_losses


class LossHead(Head):
    """A head of one loss.

    Args:
        logits_dimension: The size of the logits' last dimension.
        weight_column: The name of the feature of weights, or a numeric column.
        loss_reduction: The reduction of the examples' losses.
        loss_fn: A function of (labels, logits) that returns them; `None` for the head's own.
        name: Put behind the names of metrics.
    """

    # Whether there may be a weight for each logit; and how many losses an example has, `None` for one for each logit.
    _has_logit_weights = False
    _losses_per_example: int | None = 1

    def __init__(
        self,
        logits_dimension: int,
        weight_column: WeightColumn,
        loss_reduction: object,
        loss_fn: Callable[..., Any] | None,
        name: str | None,
    ) -> None:
        self._logits_dimension = logits_dimension
        self._weight_column = _inputs.check_weight_column(weight_column)
        self._loss_reduction = check_reduction(loss_reduction)
        self._loss_fn = _custom_loss.check_loss_fn(loss_fn)
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
        loss = reduce_losses(losses, weights, self.loss_reduction)
        return loss if regularization_losses is None else loss + total(regularization_losses)

    def metrics(self, regularization_losses: Sequence[Any] | None = None) -> dict[str, Any]:
        names = [_keys.LOSS_MEAN] + ([] if regularization_losses is None else [_keys.LOSS_REGULARIZATION])
        return {self.key(name): keras.metrics.Mean(name=metric_name(name)) for name in names} | self._head_metrics()

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
        update(eval_metrics[self.key(_keys.LOSS_MEAN)], losses, weights=weights)
        if regularization_losses is not None:
            update(eval_metrics[self.key(_keys.LOSS_REGULARIZATION)], total(regularization_losses))
        self._update_own_metrics(eval_metrics, numbers, scores, weights)
        return eval_metrics

    def _weighted_losses(self, labels: jax.Array, logits: jax.Array, features: PyTree) -> tuple[jax.Array, Any]:
        weights = _inputs.weights_of(features, self._weight_column, logits, self._has_logit_weights)
        if self._loss_fn is None:
            return self._losses(labels, logits), weights
        size = self._losses_per_example or self.logits_dimension
        losses = _custom_loss.call(self._loss_fn, labels, logits, features, self.loss_reduction, size)
        return losses.astype(jnp.float32), weights

    @abstractmethod
    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        """Labels as numbers, in the shape of the logits but for the last dimension."""

    @abstractmethod
    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        """Returns the losses of the examples."""

    @abstractmethod
    def _head_metrics(self) -> dict[str, Any]:
        """Returns metrics besides those of the loss."""

    @abstractmethod
    def _update_own_metrics(
        self, metrics: Mapping[str, Any], labels: jax.Array, logits: jax.Array, weights: jax.Array | None
    ) -> None:
        """Updates them."""


def metric_name(key: str) -> str:
    """Returns a name for a metric's variables, which must not have a slash."""
    return key.replace("/", "_")


def sigmoid_cross_entropy(labels: jax.Array, logits: jax.Array) -> jax.Array:
    """Returns the loss of each logit for labels from 0 to 1."""
    # Not by abs and maximum: JAX takes their gradients at 0, where training often starts, from different sides.
    is_positive = logits >= 0
    above, below = jnp.where(is_positive, logits, 0), jnp.where(is_positive, -logits, logits)
    return above - logits * labels + jnp.log1p(jnp.exp(below))
