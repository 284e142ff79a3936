"""Means over classes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lockstep._model_fn.records import MetricOp
from lockstep.errors import ArgumentError
from lockstep.metrics._means import ratio
from lockstep.metrics._shapes import array_of, known_if
from lockstep.metrics._streaming import Report, wide


def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean over classes of how often a class was recognised; one that did not occur counts as never.

    Args:
        labels: The right classes, integers of any shape.
        predictions: Classes, as many.
        num_classes: How many classes there are.
        weights: What each example counts, as many; `None` for 1.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float32 of no dimensions; NaN once a label was none of the classes.

    Raises:
        ArgumentError: If there are not as many labels as predictions and weights.

    Source: tf.compat.v1.metrics.mean_per_class_accuracy.
    """
    report = Report("mean_per_class_accuracy", name or "mean_accuracy", metrics_collections, updates_collections)
    truth, said, counted = _flat(labels, predictions, weights)
    known = jnp.all(_is_class(truth, num_classes))
    member = truth[:, None] == jnp.arange(num_classes)
    hits = member & (said.astype(truth.dtype) == truth)[:, None]
    sums = {"total": _sum_of(member, counted), "count": _sum_of(hits, counted)}
    return report({key: known_if(known, value) for key, value in sums.items()}, _mean_accuracy)


def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean over classes of intersection over union; classes that occur nowhere do not count.

    Args:
        labels: The right classes, integers of any shape.
        predictions: Classes, of the same shape.
        num_classes: How many classes there are.
        weights: What each example counts, as many; `None` for 1.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float32 of no dimensions; 0 if there are no examples, NaN once a label or prediction was none of the classes.

    Raises:
        ArgumentError: If there are not as many labels as predictions and weights.

    Source: tf.compat.v1.metrics.mean_iou.
    """
    report = Report("mean_iou", name or "mean_iou", metrics_collections, updates_collections)
    truth, said, counted = _flat(labels, predictions, weights)
    said = said.astype(truth.dtype)
    known = jnp.all(_is_class(truth, num_classes) & _is_class(said, num_classes))
    place = jnp.where(known, truth * num_classes + said, 0)
    matrix = jnp.zeros(num_classes**2, wide(0).dtype).at[place].add(wide(counted))
    return report({"total_confusion_matrix": known_if(known, matrix.reshape(num_classes, num_classes))}, _mean_iou)


def _flat(labels: Any, predictions: Any, weights: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns labels as integers, predictions, and weights, in one dimension."""
    truth = array_of(labels, "labels").astype(jax.dtypes.canonicalize_dtype(jnp.int64)).reshape(-1)
    said = array_of(predictions, "predictions").reshape(-1)
    counted = jnp.ones(truth.shape) if weights is None else array_of(weights, "weights").astype(jnp.float32).reshape(-1)
    if counted.size == 1:
        counted = jnp.broadcast_to(counted, truth.shape)
    if not truth.size == said.size == counted.size:
        raise ArgumentError(
            f"There are as many predictions and weights as labels. Received: {truth.size} labels, {said.size} "
            f"predictions, {counted.size} weights."
        )
    return truth, said, counted


def _is_class(values: jax.Array, count: int) -> jax.Array:
    return (values >= 0) & (values < count)


def _sum_of(chosen: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(chosen, weights[:, None], 0), axis=0)


def _mean_accuracy(total: jax.Array, count: jax.Array) -> jax.Array:
    return jnp.mean(jnp.where(jnp.isnan(total), jnp.nan, ratio(count, total)))


def _mean_iou(total_confusion_matrix: jax.Array) -> jax.Array:
    both = jnp.diag(total_confusion_matrix)
    union = jnp.sum(total_confusion_matrix, 0) + jnp.sum(total_confusion_matrix, 1) - both
    present = jnp.sum(union != 0)
    mean = jnp.sum(both / jnp.where(union > 0, union, 1)) / jnp.maximum(present, 1)
    return mean.astype(jnp.float32)
