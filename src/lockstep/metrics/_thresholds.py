"""Yes-or-no predictions by thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._model_fn.records import MetricOp
from lockstep.metrics._shapes import aligned, array_of, broadcast, known_if
from lockstep.metrics._streaming import Report

CASES = ("true_positives", "false_negatives", "true_negatives", "false_positives")
_EPSILON = 1e-7


def confusion_at(
    labels: Any, predictions: Any, thresholds: Sequence[float], weights: Any, cases: Sequence[str] = CASES
) -> dict[str, jax.Array]:
    """Returns what a batch adds to counts of right and wrong predictions, for each threshold.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape; above a threshold they mean true.
        thresholds: Any number of them.
        weights: What each counts, see `mean`.
        cases: Which counts.

    Returns:
        Sums of weights, a float32 for each threshold; NaN if a prediction is not from 0 to 1.
    """
    truth, scores, weights = aligned(
        array_of(labels, "labels").astype(bool), array_of(predictions, "predictions").astype(jnp.float32), weights
    )
    counted = jnp.ones_like(scores) if weights is None else broadcast(weights, scores)
    in_range = jnp.all((scores >= 0) & (scores <= 1))
    truth, scores, counted = truth.reshape(-1), scores.reshape(-1), counted.reshape(-1)
    said = scores[None, :] > jnp.asarray(thresholds, jnp.float32)[:, None]
    hits = {"true": said == truth, "false": said != truth}
    sides = {"positives": said, "negatives": ~said}
    found: dict[str, jax.Array] = {}
    for case in cases:
        right, side = case.split("_")
        found[case] = known_if(in_range, jnp.sum(jnp.where(hits[right] & sides[side], counted, 0), axis=1))
    return found


def true_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be true, and are, for each threshold.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape; above a threshold they mean true.
        thresholds: Any number of them.
        weights: What each counts, see `mean`.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float32 for each threshold; NaN once a prediction was not from 0 to 1.

    Source: tf.compat.v1.metrics.true_positives_at_thresholds.
    """
    report = Report("true_positives_at_thresholds", name or "true_positives", metrics_collections, updates_collections)
    return report(confusion_at(labels, predictions, thresholds, weights, ["true_positives"]), _only)


def false_positives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be true, and are not, for each threshold.

    See `true_positives_at_thresholds` for the arguments.

    Source: tf.compat.v1.metrics.false_positives_at_thresholds.
    """
    report = Report(
        "false_positives_at_thresholds", name or "false_positives", metrics_collections, updates_collections
    )
    return report(confusion_at(labels, predictions, thresholds, weights, ["false_positives"]), _only)


def true_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be false, and are, for each threshold.

    See `true_positives_at_thresholds` for the arguments.

    Source: tf.compat.v1.metrics.true_negatives_at_thresholds.
    """
    report = Report("true_negatives_at_thresholds", name or "true_negatives", metrics_collections, updates_collections)
    return report(confusion_at(labels, predictions, thresholds, weights, ["true_negatives"]), _only)


def false_negatives_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weights of the examples that were predicted to be false, and are not, for each threshold.

    See `true_positives_at_thresholds` for the arguments.

    Source: tf.compat.v1.metrics.false_negatives_at_thresholds.
    """
    report = Report(
        "false_negatives_at_thresholds", name or "false_negatives", metrics_collections, updates_collections
    )
    return report(confusion_at(labels, predictions, thresholds, weights, ["false_negatives"]), _only)


def precision_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of the examples that were predicted to be true is, for each threshold.

    See `true_positives_at_thresholds` for the arguments.

    Source: tf.compat.v1.metrics.precision_at_thresholds.
    """
    report = Report(
        "precision_at_thresholds", name or "precision_at_thresholds", metrics_collections, updates_collections
    )
    cases = ("true_positives", "false_positives")
    return report(confusion_at(labels, predictions, thresholds, weights, cases), _part)


def recall_at_thresholds(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of the examples that are true was predicted to be, for each threshold.

    See `true_positives_at_thresholds` for the arguments.

    Source: tf.compat.v1.metrics.recall_at_thresholds.
    """
    report = Report("recall_at_thresholds", name or "recall_at_thresholds", metrics_collections, updates_collections)
    cases = ("true_positives", "false_negatives")
    return report(confusion_at(labels, predictions, thresholds, weights, cases), _part)


def _only(**sums: jax.Array) -> jax.Array:
    (counts,) = sums.values()
    return counts


def _part(true_positives: jax.Array, **others: jax.Array) -> jax.Array:
    (other,) = others.values()
    return true_positives / (_EPSILON + true_positives + other)
