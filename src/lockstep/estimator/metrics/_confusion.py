"""Confusion counts of binary predictions, with and without thresholds, and their ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator.metrics._streaming import (
    Collections,
    PairMetric,
    align,
    broadcast_weights,
    nan_unless,
    ratio,
    streaming_metric,
    to_array,
)

# In the order of TensorFlow's `_confusion_matrix_at_thresholds`.
CASES = ("true_positives", "false_negatives", "true_negatives", "false_positives")
# Hits first: `_ratio` takes the other one, whatever its name.
_PRECISION = ("true_positives", "false_positives")
_RECALL = ("true_positives", "false_negatives")


class _ThresholdMetric(Protocol):
    """The signature of metrics at thresholds."""

    def __call__(
        self,
        labels: Tensor,
        predictions: Tensor,
        thresholds: Sequence[float],
        weights: Tensor | None = None,
        metrics_collections: Collections = None,
        updates_collections: Collections = None,
        name: str | None = None,
    ) -> MetricOp: ...


def _confusion(
    labels: Tensor, predictions: Tensor, weights: Tensor | None, cases: Sequence[str]
) -> dict[str, jax.Array]:
    """Returns a batch's sums of weights, for each case."""
    # tf.compat.v1.metrics casts both to bool: a probability of 0.1 counts as true. Metrics at thresholds do not.
    truth, guesses, factors = align(
        to_array(labels, "labels").astype(bool), to_array(predictions, "predictions").astype(bool), weights
    )
    factor = 1.0 if factors is None else _check_weights(factors, truth)
    return {case: jnp.sum(_in_case(case, truth, guesses).astype(jnp.float32) * factor) for case in cases}


def _in_case(case: str, labels: jax.Array, predictions: jax.Array) -> jax.Array:
    """Returns a boolean for each example: `true_negatives` are right predictions of false."""
    right, side = case.split("_")
    matches = predictions == labels if right == "true" else predictions != labels
    return matches & (predictions if side == "positives" else ~predictions)


def _check_weights(weights: jax.Array, values: jax.Array) -> jax.Array:
    # Unlike `broadcast_weights`, weights may be wider than the labels: TensorFlow multiplies them without a check here.
    try:
        jnp.broadcast_shapes(weights.shape, values.shape)
        fits = weights.ndim in (0, values.ndim)
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            "Weights are one number, or an array of the labels' rank that broadcasts to them. Received: weights of "
            f"shape {weights.shape}, labels of shape {values.shape}."
        )
    return weights.astype(jnp.float32)


def confusion_at(
    labels: Tensor,
    predictions: Tensor,
    thresholds: Sequence[float],
    weights: Tensor | None,
    cases: Sequence[str] = CASES,
) -> dict[str, jax.Array]:
    """Returns a batch's sums of weights by case, a float32 for each threshold; NaN for predictions beyond 0 to 1."""
    truth, scores, factors = align(
        to_array(labels, "labels").astype(bool), to_array(predictions, "predictions").astype(jnp.float32), weights
    )
    factors = jnp.ones_like(scores) if factors is None else broadcast_weights(factors, scores)
    # TensorFlow asserts the range; see `nan_unless`.
    in_range = jnp.all((scores >= 0) & (scores <= 1))
    truth, scores, factors = truth.reshape(-1), scores.reshape(-1), factors.reshape(-1)
    # (thresholds, examples): one comparison for all thresholds.
    # `>`, as TensorFlow: a prediction equal to the threshold means false.
    guesses = scores[None, :] > jnp.asarray(thresholds, jnp.float32)[:, None]
    return {
        case: nan_unless(in_range, jnp.sum(jnp.where(_in_case(case, truth, guesses), factors, 0), axis=1))
        for case in cases
    }


def _only_sum(**sums: jax.Array) -> jax.Array:
    (count,) = sums.values()
    return count


def _ratio(true_positives: jax.Array, **others: jax.Array) -> jax.Array:
    (other,) = others.values()
    return ratio(true_positives, true_positives + other)


def _ratio_at(true_positives: jax.Array, **others: jax.Array) -> jax.Array:
    # TensorFlow's `_EPSILON` of the metrics at thresholds. Those without thresholds have none, and test for 0 instead.
    (other,) = others.values()
    return true_positives / (1e-7 + true_positives + other)


def _binary_metric(
    function: str, summary: str, cases: Sequence[str], compute: Callable[..., jax.Array] = _only_sum
) -> PairMetric:
    """Returns the public function of one metric of binary predictions."""

    def metric(
        labels: Tensor,
        predictions: Tensor,
        weights: Tensor | None = None,
        metrics_collections: Collections = None,
        updates_collections: Collections = None,
        name: str | None = None,
    ) -> MetricOp:
        sums = _confusion(labels, predictions, weights, cases)
        return streaming_metric(function, name or function, sums, compute, metrics_collections, updates_collections)

    metric.__name__ = metric.__qualname__ = function
    metric.__doc__ = f"""{summary}.

    Args:
        labels: Zero for false, of any shape.
        predictions: Zero for false, of the same shape.
        weights: The weight of each example: a number, or an array of the same rank. `None` for 1.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float32 of no dimensions.

    Source: tf.compat.v1.metrics.{function}.
    """
    return metric


def _threshold_metric(
    function: str, default: str, summary: str, cases: Sequence[str], compute: Callable[..., jax.Array] = _only_sum
) -> _ThresholdMetric:
    """Returns the public function of one metric at thresholds, named `default` unless the caller names it."""

    def metric(
        labels: Tensor,
        predictions: Tensor,
        thresholds: Sequence[float],
        weights: Tensor | None = None,
        metrics_collections: Collections = None,
        updates_collections: Collections = None,
        name: str | None = None,
    ) -> MetricOp:
        sums = confusion_at(labels, predictions, thresholds, weights, cases)
        return streaming_metric(function, name or default, sums, compute, metrics_collections, updates_collections)

    metric.__name__ = metric.__qualname__ = function
    metric.__doc__ = f"""{summary}, for each threshold.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape; above a threshold they mean true.
        thresholds: Any number of them.
        weights: The weight of each example, see `mean`.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float32 for each threshold; NaN once a prediction was not from 0 to 1.

    Source: tf.compat.v1.metrics.{function}.
    """
    return metric


_SUMMARIES = {
    "true_positives": "Returns the sum of weights of true examples that were predicted to be true",
    "false_positives": "Returns the sum of weights of false examples that were predicted to be true",
    "true_negatives": "Returns the sum of weights of false examples that were predicted to be false",
    "false_negatives": "Returns the sum of weights of true examples that were predicted to be false",
    "precision": "Returns the share of true examples among those predicted to be true; 0 if there are none",
    "recall": "Returns the share of examples predicted to be true among the true ones; 0 if there are none",
}


true_positives, false_positives, true_negatives, false_negatives = (
    _binary_metric(case, _SUMMARIES[case], [case])
    for case in ("true_positives", "false_positives", "true_negatives", "false_negatives")
)
precision = _binary_metric("precision", _SUMMARIES["precision"], _PRECISION, _ratio)
recall = _binary_metric("recall", _SUMMARIES["recall"], _RECALL, _ratio)

# TensorFlow names these metrics without the suffix, but the two ratios with it.
(
    true_positives_at_thresholds,
    false_positives_at_thresholds,
    true_negatives_at_thresholds,
    false_negatives_at_thresholds,
) = (
    _threshold_metric(f"{case}_at_thresholds", case, _SUMMARIES[case], [case])
    for case in ("true_positives", "false_positives", "true_negatives", "false_negatives")
)
precision_at_thresholds, recall_at_thresholds = (
    _threshold_metric(f"{name}_at_thresholds", f"{name}_at_thresholds", _SUMMARIES[name], cases, _ratio_at)
    for name, cases in (("precision", _PRECISION), ("recall", _RECALL))
)
