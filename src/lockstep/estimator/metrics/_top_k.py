"""Precision and recall of the classes with the k highest scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator.metrics._streaming import Collections, streaming_metric, to_array, widen


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
    chosen = _top_k(predictions, k)
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
    chosen = _top_k(predictions, k)
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
    chosen = _top_k(predictions, k)
    truth = _expand_labels(labels, chosen)
    # -1 never matches a prediction, and is not counted below.
    truth = jnp.where(truth >= jnp.shape(predictions)[-1], -1, truth)
    hits = widen(jnp.any(truth[..., :, None] == chosen[..., None, :], axis=-2))
    precision = jnp.cumsum(hits, -1) / jnp.arange(1, chosen.shape[-1] + 1)
    # A perfect ranking of fewer labels than k still reaches 1.
    wanted = jnp.minimum(jnp.sum(truth >= 0, -1), chosen.shape[-1])
    averages = jnp.sum(precision * hits, -1) / wanted
    factors = _broadcast_rows(weights, averages)
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
    # Duplicates count once, as in TensorFlow's set operations on sparse rows.
    truth = _expand_labels(labels, chosen)
    is_label = jnp.any(truth[..., :, None] == chosen[..., None, :], axis=-2)
    return _weighted_counts(_first_occurrences(chosen, class_id), is_label, weights)


def _recall_sums(
    labels: Tensor, chosen: jax.Array, class_id: int | None, weights: Tensor | None
) -> dict[str, jax.Array]:
    # Labels of no class count as missed: TensorFlow's set difference keeps them.
    truth = _expand_labels(labels, chosen)
    is_chosen = jnp.any(truth[..., :, None] == chosen[..., None, :], axis=-1)
    return _weighted_counts(_first_occurrences(truth, class_id), is_chosen, weights)


def _weighted_counts(counted: jax.Array, right: jax.Array, weights: Tensor | None) -> dict[str, jax.Array]:
    """Returns the sums over examples of the classes that are counted, right ones and others; booleans [..., n]."""
    hits, others = (widen(jnp.sum(counted & side, axis=-1)) for side in (right, ~right))
    # Weights are of examples, whatever the number of their labels.
    factors = _broadcast_rows(weights, hits)
    return {"true": jnp.sum(hits * factors), "false": jnp.sum(others * factors)}


def _ratio(true: jax.Array, false: jax.Array) -> jax.Array:
    # Without a guard: tf.compat.v1.metrics gives NaN for no predictions, or no labels, at k.
    return true / (true + false)


def _mean(max: jax.Array, total: jax.Array) -> jax.Array:
    # TensorFlow's names of both variables; "max" is the sum of the weights.
    return jnp.where(max == 0, 0, total / jnp.where(max == 0, 1, max))


def _first_occurrences(classes: jax.Array, class_id: int | None) -> jax.Array:
    """Returns whether each element is its row's first of its class, and is `class_id` if that is given."""
    size = classes.shape[-1]
    # (i, j) is true for j < i: an element counts if no earlier one equals it.
    before = jnp.tril(jnp.ones((size, size), bool), -1)
    first = ~jnp.any((classes[..., :, None] == classes[..., None, :]) & before, axis=-1)
    return first if class_id is None else first & (classes == class_id)


def _top_k(predictions: Tensor, k: int) -> jax.Array:
    """Returns the classes with the k highest scores; of equal scores, the first class."""
    scores = to_array(predictions, "predictions")
    if not scores.ndim or not 1 <= k <= scores.shape[-1]:
        raise ArgumentError(
            "k is at least 1, and at most the number of classes. Received: "
            f"k={k} for predictions of shape {scores.shape}."
        )
    # XLA's top_k orders -0.0 below 0.0; TensorFlow's takes them for equal, and the first wins.
    return jax.lax.top_k(jnp.where(scores == 0, 0, scores), k)[1]


def _expand_labels(labels: Tensor, chosen: jax.Array) -> jax.Array:
    """Gives labels a last dimension, for several labels of one example."""
    truth = to_array(labels, "labels")
    if not jnp.issubdtype(truth.dtype, jnp.integer):
        raise ArgumentError(f"Labels are classes, integers. Received: {truth.dtype}.")
    truth = truth[..., None] if truth.ndim == chosen.ndim - 1 else truth
    if truth.ndim != chosen.ndim or truth.shape[:-1] != chosen.shape[:-1]:
        raise ArgumentError(
            "Labels and predictions have the same shape but for the last dimension, which labels may lack. Received: "
            f"labels of shape {jnp.shape(labels)}, predictions of shape {chosen.shape}."
        )
    return truth


def _broadcast_rows(weights: Tensor | None, rows: jax.Array) -> jax.Array:
    """Broadcasts the examples' weights to shape [...]."""
    if weights is None:
        return jnp.ones_like(rows)
    array = widen(to_array(weights, "weights"))
    fits = array.ndim == rows.ndim and all(w in (1, r) for w, r in zip(array.shape, rows.shape, strict=True))
    if array.ndim and not fits:
        raise ArgumentError(
            "Weights are one number, or one for each example, each size 1 or that of the examples. Received: weights "
            f"of shape {array.shape} for examples of shape {rows.shape}."
        )
    return jnp.broadcast_to(array, rows.shape)
