"""Counts of right and wrong yes-or-no predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._model_fn.records import MetricOp
from lockstep.errors import ArgumentError
from lockstep.metrics._shapes import aligned, array_of
from lockstep.metrics._streaming import Report

# Which examples count: (labels, predictions) -> a boolean for each.
_CASES: dict[str, Callable[[Any, Any], Any]] = {
    "true_positives": lambda labels, predictions: labels & predictions,
    "false_positives": lambda labels, predictions: ~labels & predictions,
    "true_negatives": lambda labels, predictions: ~labels & ~predictions,
    "false_negatives": lambda labels, predictions: labels & ~predictions,
}


def true_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be true, and are.

    Args:
        labels: Zero for false, of any shape.
        predictions: The same, of the same shape.
        weights: What each counts: a number, or an array of the same rank. `None` for 1.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float32 of no dimensions.

    Source: tf.compat.v1.metrics.true_positives.
    """
    report = Report("true_positives", name or "true_positives", metrics_collections, updates_collections)
    return report(_sums(labels, predictions, weights, "true_positives"), _only)


def false_positives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be true, and are not; see `true_positives`.

    Source: tf.compat.v1.metrics.false_positives.
    """
    report = Report("false_positives", name or "false_positives", metrics_collections, updates_collections)
    return report(_sums(labels, predictions, weights, "false_positives"), _only)


def true_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be false, and are; see `true_positives`.

    Source: tf.compat.v1.metrics.true_negatives.
    """
    report = Report("true_negatives", name or "true_negatives", metrics_collections, updates_collections)
    return report(_sums(labels, predictions, weights, "true_negatives"), _only)


def false_negatives(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be false, and are not; see `true_positives`.

    Source: tf.compat.v1.metrics.false_negatives.
    """
    report = Report("false_negatives", name or "false_negatives", metrics_collections, updates_collections)
    return report(_sums(labels, predictions, weights, "false_negatives"), _only)


def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of the examples that were predicted to be true is; 0 if there are none.

    Args:
        labels: See `true_positives`.
        predictions: See `true_positives`.
        weights: See `true_positives`.
        metrics_collections: See `true_positives`.
        updates_collections: See `true_positives`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.precision.
    """
    report = Report("precision", name or "precision", metrics_collections, updates_collections)
    return report(_sums(labels, predictions, weights, "true_positives", "false_positives"), _part)


def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of the examples that are true was predicted to be; 0 if there are none.

    Args:
        labels: See `true_positives`.
        predictions: See `true_positives`.
        weights: See `true_positives`.
        metrics_collections: See `true_positives`.
        updates_collections: See `true_positives`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.recall.
    """
    report = Report("recall", name or "recall", metrics_collections, updates_collections)
    return report(_sums(labels, predictions, weights, "true_positives", "false_negatives"), _part)


def _sums(labels: Any, predictions: Any, weights: Any, *cases: str) -> dict[str, jax.Array]:
    """What a batch adds to the counts of some cases."""
    given = array_of(labels, "labels").astype(bool), array_of(predictions, "predictions").astype(bool)
    truth, said, weights = aligned(*given, weights)
    factor = 1.0 if weights is None else _fitting(weights, truth)
    return {case: jnp.sum(_CASES[case](truth, said).astype(jnp.float32) * factor) for case in cases}


def _fitting(weights: jax.Array, values: jax.Array) -> jax.Array:
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


def _only(**sums: jax.Array) -> jax.Array:
    (count,) = sums.values()
    return count


def _part(true_positives: jax.Array, **others: jax.Array) -> jax.Array:
    (other,) = others.values()
    whole = true_positives + other
    return jnp.where(whole > 0, true_positives / jnp.where(whole > 0, whole, 1), 0)
