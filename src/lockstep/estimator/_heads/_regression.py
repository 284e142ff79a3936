"""Heads that predict numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._heads import _inputs, _keys
from lockstep.estimator._heads._inputs import WeightColumn
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE, LossHead, sigmoid_cross_entropy
from lockstep.estimator._heads._metrics import HeadMetric, mean_metric


class RegressionHead(LossHead):
    """Predicts numbers; by default its loss is the squared difference.

    Args:
        label_dimension: Number of labels per example.
        weight_column: The name of the feature of weights, or a numeric column: one for each example or each number.
        loss_reduction: The reduction of the examples' losses.
        loss_fn: A function of labels and logits, maybe features and loss_reduction, that returns a loss for each
            number.
        inverse_link_fn: Turns logits into predictions; `None` if they are the same.
        name: Put behind the names of metrics.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.RegressionHead.
    """

    # Labels of several dimensions have a loss each, so weights and a loss_fn may tell them apart.
    _has_logit_weights = True
    _losses_per_example = None

    def __init__(
        self,
        label_dimension: object = 1,
        weight_column: WeightColumn | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        loss_fn: Callable[..., Any] | None = None,
        inverse_link_fn: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(label_dimension, (int, np.integer)) or label_dimension < 1:
            raise ArgumentError(f"label_dimension must be an integer from 1 up. Received: {label_dimension!r}.")
        super().__init__(int(label_dimension), weight_column, loss_reduction, loss_fn, name)
        self._inverse_link_fn = inverse_link_fn

    def _predict(self, logits: jax.Array) -> dict[str, Any]:
        # Logits are shown only where they differ from the predictions, as tf.estimator.RegressionHead does.
        if self._inverse_link_fn is None:
            return {_keys.PREDICTIONS: logits}
        return {_keys.PREDICTIONS: self._inverse_link_fn(logits), _keys.LOGITS: logits}

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        from lockstep.estimator._export.outputs import PredictOutput, RegressionOutput

        output = RegressionOutput(value=predictions[_keys.PREDICTIONS])
        return {
            _keys.DEFAULT_SIGNATURE: output,
            _keys.REGRESS_SIGNATURE: output,
            _keys.PREDICT_SIGNATURE: PredictOutput(predictions),
        }

    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        numbers = _inputs.check_labels(labels, logits, self.logits_dimension, _inputs.numbers)
        return numbers.astype(jnp.float32)

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        return (labels - logits) ** 2

    def _metric_table(self) -> dict[str, HeadMetric]:
        return mean_metric(_keys.PREDICTION_MEAN, _keys.PREDICTIONS) | mean_metric(_keys.LABEL_MEAN, _keys.LABELS)

    def _metric_values(self, labels: jax.Array, logits: jax.Array) -> Mapping[Hashable, jax.Array]:
        return {_keys.LABELS: labels, **self.predictions(logits, [_keys.PREDICTIONS])}


class PoissonRegressionHead(RegressionHead):
    """Predicts counts: the logits are logarithms of their expected values.

    Args:
        label_dimension: Number of counts per example.
        weight_column: The name of the feature of weights, or a numeric column: one for each example or each count.
        loss_reduction: The reduction of the examples' losses.
        compute_full_loss: Whether the loss has the term of the labels alone, log(label!), by Stirling's formula.
        name: Put behind the names of metrics.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.PoissonRegressionHead.
    """

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: WeightColumn | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        compute_full_loss: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(label_dimension, weight_column, loss_reduction, inverse_link_fn=jnp.exp, name=name)
        self._compute_full_loss = compute_full_loss

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        # tf.nn.log_poisson_loss, the negative log likelihood of a Poisson distribution with the rate exp(logits).
        losses = jnp.exp(logits) - logits * labels
        if not self._compute_full_loss:
            return losses
        # Stirling's approximation of log(label!), and 0 for 0 and 1, where it is poor.
        safe = jnp.maximum(labels, 1)
        approximation = safe * jnp.log(safe) - safe + 0.5 * jnp.log(2 * np.pi * safe)
        return losses + jnp.where((labels >= 0) & (labels <= 1), 0, approximation)


class LogisticRegressionHead(RegressionHead):
    """Predicts one number from 0 to 1; its loss is the cross entropy.

    Labels are numbers from 0 to 1; others make the loss NaN.

    Args:
        weight_column: The name of the feature of weights, or a numeric column.
        loss_reduction: The reduction of the examples' losses.
        name: Put behind the names of metrics.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.LogisticRegressionHead.
    """

    def __init__(
        self,
        weight_column: WeightColumn | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        name: str | None = None,
    ) -> None:
        super().__init__(1, weight_column, loss_reduction, inverse_link_fn=jax.nn.sigmoid, name=name)

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        is_share = (labels >= 0) & (labels <= 1)
        return _inputs.or_nan(sigmoid_cross_entropy(labels, logits), is_share, "Labels must be in the range [0, 1].")
