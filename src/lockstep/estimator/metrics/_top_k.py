"""Precision and recall of the classes with the k highest scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator.metrics._shapes import to_array
from lockstep.estimator.metrics._streaming import Collections, streaming_metric, widen
from lockstep.estimator.metrics._top_k_sets import ClassSets, broadcast_rows, expand_labels, top_k


def precision_at_k(
    labels: Tensor,
    predictions: Tensor,
    k: int,
    class_id: int | None = None,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the share of the k classes with the highest scores that are among an example's labels.

    Args:
        labels: Classes of each example, integers of shape [..., labels], or [...] for one each. A row may be filled up
            with -1.
        predictions: Scores of all classes, floats of shape [..., classes].
        k: Number of predicted classes.
        class_id: Count only this class; `None` for all.
        weights: The weight of each example: a number, or an array of shape [...], each size 1 or the
            same. `None` for 1.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float of no dimensions; NaN if nothing was predicted.

    Raises:
        ArgumentError: If the shapes do not match, or there are less than k classes.

    Source: tf.compat.v1.metrics.precision_at_k.
    """
    chosen = top_k(predictions, k)
    sums = _precision_sums(labels, chosen, class_id, weights)
    name = name or _default_name("precision", k, class_id)
    return streaming_metric("precision_at_k", name, sums, _ratio, metrics_collections, updates_collections)


def precision_at_top_k(
    labels: Tensor,
    predictions_idx: Tensor,
    k: int | None = None,
    class_id: int | None = None,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the share of predicted classes that are among an example's labels.

    Args:
        labels: See `precision_at_k`.
        predictions_idx: The predicted classes, integers of shape [..., k].
        k: Number of predicted classes, for the metric's name.
        class_id: See `precision_at_k`.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Name of the metric.

    Source: tf.compat.v1.metrics.precision_at_top_k.
    """
    chosen = to_array(predictions_idx, "predictions_idx")
    sums = _precision_sums(labels, chosen, class_id, weights)
    name = name or _default_name("precision", k, class_id)
    return streaming_metric("precision_at_top_k", name, sums, _ratio, metrics_collections, updates_collections)


def recall_at_k(
    labels: Tensor,
    predictions: Tensor,
    k: int,
    class_id: int | None = None,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the share of an example's labels that are among the k classes with the highest scores.

    Args:
        labels: See `precision_at_k`; an unknown class counts as missed.
        predictions: See `precision_at_k`.
        k: Number of predicted classes.
        class_id: See `precision_at_k`.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Name of the metric.

    Returns:
        A float of no dimensions; NaN if there are no labels.

    Source: tf.compat.v1.metrics.recall_at_k.
    """
    chosen = top_k(predictions, k)
    sums = _recall_sums(labels, chosen, class_id, weights)
    name = name or _default_name("recall", k, class_id)
    return streaming_metric("recall_at_k", name, sums, _ratio, metrics_collections, updates_collections)


def recall_at_top_k(
    labels: Tensor,
    predictions_idx: Tensor,
    k: int | None = None,
    class_id: int | None = None,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the share of an example's labels that are among the predicted classes.

    Args:
        labels: See `recall_at_k`.
        predictions_idx: The predicted classes, integers of shape [..., k].
        k: Number of predicted classes, for the metric's name.
        class_id: See `precision_at_k`.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Name of the metric.

    Source: tf.compat.v1.metrics.recall_at_top_k.
    """
    chosen = to_array(predictions_idx, "predictions_idx")
    sums = _recall_sums(labels, chosen, class_id, weights)
    name = name or _default_name("recall", k, class_id)
    return streaming_metric("recall_at_top_k", name, sums, _ratio, metrics_collections, updates_collections)


def average_precision_at_k(
    labels: Tensor,
    predictions: Tensor,
    k: int,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean average precision: per example, the mean of precision at the rank of each hit.

    Args:
        labels: See `precision_at_k`; unknown classes do not count.
        predictions: See `precision_at_k`.
        k: Number of predicted classes.
        weights: See `precision_at_k`.
        metrics_collections: See `precision_at_k`.
        updates_collections: See `precision_at_k`.
        name: Name of the metric.

    Returns:
        A float of no dimensions; NaN once an example had no labels.

    Source: tf.compat.v1.metrics.average_precision_at_k.
    """
    chosen = top_k(predictions, k)
    truth = expand_labels(labels, chosen)
    # -1 never matches a prediction, and is not counted below.
    truth = jnp.where(truth >= jnp.shape(predictions)[-1], -1, truth)
    hits = widen(ClassSets(truth, chosen).hits())
    precision = jnp.cumsum(hits, -1) / jnp.arange(1, chosen.shape[-1] + 1)
    # A perfect ranking of fewer labels than k still reaches 1.
    wanted = jnp.minimum(jnp.sum(truth >= 0, -1), chosen.shape[-1])
    averages = jnp.sum(precision * hits, -1) / wanted
    factors = broadcast_rows(weights, averages)
    sums = {"max": jnp.sum(factors), "total": jnp.sum(averages * factors)}
    name = name or _default_name("average_precision", k, None)
    return streaming_metric("average_precision_at_k", name, sums, _mean, metrics_collections, updates_collections)


# TensorFlow keeps these older names.
sparse_average_precision_at_k = average_precision_at_k
sparse_precision_at_k = precision_at_k


def _default_name(kind: str, k: int | None, class_id: int | None) -> str:
    return f"{kind}_at_{'k' if k is None else k}" + ("" if class_id is None else f"_class{class_id}")


def _precision_sums(
    labels: Tensor, chosen: jax.Array, class_id: int | None, weights: Tensor | None
) -> dict[str, jax.Array]:
    sets = ClassSets(expand_labels(labels, chosen), chosen, class_id)
    hits, wrong = sets.true_positives(), sets.false_positives()
    factors = broadcast_rows(weights, hits)
    return {"true": jnp.sum(hits * factors), "false": jnp.sum(wrong * factors)}


def _recall_sums(
    labels: Tensor, chosen: jax.Array, class_id: int | None, weights: Tensor | None
) -> dict[str, jax.Array]:
    sets = ClassSets(expand_labels(labels, chosen), chosen, class_id)
    hits, missed = sets.true_positives(), sets.false_negatives()
    factors = broadcast_rows(weights, hits)
    return {"true": jnp.sum(hits * factors), "false": jnp.sum(missed * factors)}


def _ratio(true: jax.Array, false: jax.Array) -> jax.Array:
    return true / (true + false)


def _mean(max: jax.Array, total: jax.Array) -> jax.Array:
    return jnp.where(max == 0, 0, total / jnp.where(max == 0, 1, max))
