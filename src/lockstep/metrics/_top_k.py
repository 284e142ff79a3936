"""Precision and recall of the classes with the k highest scores."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lockstep._model_fn.records import MetricOp
from lockstep.metrics._shapes import array_of
from lockstep.metrics._streaming import Report, wide
from lockstep.metrics._top_k_sets import Sets, broadcast_rows, expanded, top


def precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of the k classes with the highest scores is among an example's labels.

    Args:
        labels: Classes of each example, integers of shape [..., labels], or [...] for one each. A row may be filled up
            with -1.
        predictions: Scores of all classes, floats of shape [..., classes].
        k: How many classes are predicted.
        class_id: Count only this class; `None` for all.
        weights: What each example counts: a number, or an array of shape [...], each size 1 or the same. `None` for 1.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float of no dimensions; NaN if nothing was predicted.

    Raises:
        ArgumentError: If the shapes do not match, or there are less than k classes.

    Source: tf.compat.v1.metrics.precision_at_k.
    """
    chosen = top(predictions, k)
    report = _report("precision_at_k", "precision", name, k, class_id, metrics_collections, updates_collections)
    return _precision(report, labels, chosen, class_id, weights)


def precision_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of the predicted classes is among an example's labels.

    Args:
        labels: See `precision_at_k`.
        predictions_idx: The predicted classes, integers of shape [..., k].
        k: How many they are, for the metric's name.
        class_id: See `precision_at_k`.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.precision_at_top_k.
    """
    chosen = array_of(predictions_idx, "predictions_idx")
    report = _report("precision_at_top_k", "precision", name, k, class_id, metrics_collections, updates_collections)
    return _precision(report, labels, chosen, class_id, weights)


def recall_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of an example's labels is among the k classes with the highest scores.

    Args:
        labels: See `precision_at_k`; a label that is none of the classes counts as not found.
        predictions: See `precision_at_k`.
        k: How many classes are predicted.
        class_id: See `precision_at_k`.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Of the metric.

    Returns:
        A float of no dimensions; NaN if there are no labels.

    Source: tf.compat.v1.metrics.recall_at_k.
    """
    chosen = top(predictions, k)
    report = _report("recall_at_k", "recall", name, k, class_id, metrics_collections, updates_collections)
    return _recall(report, labels, chosen, class_id, weights)


def recall_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of an example's labels is among the predicted classes.

    Args:
        labels: See `recall_at_k`.
        predictions_idx: The predicted classes, integers of shape [..., k].
        k: How many they are, for the metric's name.
        class_id: See `precision_at_k`.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.recall_at_top_k.
    """
    chosen = array_of(predictions_idx, "predictions_idx")
    report = _report("recall_at_top_k", "recall", name, k, class_id, metrics_collections, updates_collections)
    return _recall(report, labels, chosen, class_id, weights)


def average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean over examples of their average precision: of the precision at each place that is a hit.

    Args:
        labels: See `precision_at_k`; those that are none of the classes do not count.
        predictions: See `precision_at_k`.
        k: How many classes are predicted.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Of the metric.

    Returns:
        A float of no dimensions; NaN once an example had no labels.

    Source: tf.compat.v1.metrics.average_precision_at_k.
    """
    chosen = top(predictions, k)
    report = _report(
        "average_precision_at_k", "average_precision", name, k, None, metrics_collections, updates_collections
    )
    truth = expanded(labels, chosen)
    truth = jnp.where(truth >= jnp.shape(predictions)[-1], -1, truth)
    hits = wide(Sets(truth, chosen).hits())
    precision = jnp.cumsum(hits, -1) / jnp.arange(1, chosen.shape[-1] + 1)
    wanted = jnp.minimum(jnp.sum(truth >= 0, -1), chosen.shape[-1])
    averages = jnp.sum(precision * hits, -1) / wanted
    counted = broadcast_rows(weights, averages)
    return report({"max": jnp.sum(counted), "total": jnp.sum(averages * counted)}, _mean)


# Their names in TensorFlow before it dropped the "sparse".
sparse_average_precision_at_k = average_precision_at_k
sparse_precision_at_k = precision_at_k


def _report(
    function: str, kind: str, name: str | None, k: int | None, class_id: int | None, values: Any, updates: Any
) -> Report:
    default = f"{kind}_at_{'k' if k is None else k}" + ("" if class_id is None else f"_class{class_id}")
    return Report(function, name or default, values, updates)


def _precision(report: Report, labels: Any, chosen: jax.Array, class_id: int | None, weights: Any) -> MetricOp:
    sets = Sets(expanded(labels, chosen), chosen, class_id)
    found, wrong = sets.true_positives(), sets.false_positives()
    counted = broadcast_rows(weights, found)
    return report({"true": jnp.sum(found * counted), "false": jnp.sum(wrong * counted)}, _part)


def _recall(report: Report, labels: Any, chosen: jax.Array, class_id: int | None, weights: Any) -> MetricOp:
    sets = Sets(expanded(labels, chosen), chosen, class_id)
    found, missed = sets.true_positives(), sets.false_negatives()
    counted = broadcast_rows(weights, found)
    return report({"true": jnp.sum(found * counted), "false": jnp.sum(missed * counted)}, _part)


def _part(true: jax.Array, false: jax.Array) -> jax.Array:
    return true / (true + false)


def _mean(max: jax.Array, total: jax.Array) -> jax.Array:
    return jnp.where(max == 0, 0, total / jnp.where(max == 0, 1, max))
