"""Means over classes: accuracy per class, intersection over union."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator.metrics._means import ratio
from lockstep.estimator.metrics._shapes import nan_unless, to_array
from lockstep.estimator.metrics._streaming import Collections, streaming_metric, widen


def mean_per_class_accuracy(
    labels: Tensor,
    predictions: Tensor,
    num_classes: int,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean over classes of each class' accuracy; a class without examples counts as 0.

    Args:
        labels: The right classes, integers of any shape.
        predictions: Predicted classes, as many as labels.
        num_classes: Number of classes.
        weights: The weight of each example; `None` for 1.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float32 of no dimensions; NaN once a label was none of the classes.

    Raises:
        ArgumentError: If the numbers of labels, predictions and weights differ.

    Source: tf.compat.v1.metrics.mean_per_class_accuracy.
    """
    truth, guesses, factors = _flatten(labels, predictions, weights)
    known = jnp.all(_is_class(truth, num_classes))
    member = truth[:, None] == jnp.arange(num_classes)
    hits = member & (guesses.astype(truth.dtype) == truth)[:, None]
    sums = {"total": _sum_of(member, factors), "count": _sum_of(hits, factors)}
    name = name or "mean_accuracy"
    sums = {key: nan_unless(known, value) for key, value in sums.items()}
    return streaming_metric(
        "mean_per_class_accuracy", name, sums, _mean_accuracy, metrics_collections, updates_collections
    )


def mean_iou(
    labels: Tensor,
    predictions: Tensor,
    num_classes: int,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean over classes of intersection over union; classes that occur nowhere do not count.

    Args:
        labels: The right classes, integers of any shape.
        predictions: Predicted classes, of the same shape.
        num_classes: Number of classes.
        weights: The weight of each example; `None` for 1.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float32 of no dimensions; 0 if there are no examples, NaN once a label or prediction was none of the classes.

    Raises:
        ArgumentError: If the numbers of labels, predictions and weights differ.

    Source: tf.compat.v1.metrics.mean_iou.
    """
    truth, guesses, factors = _flatten(labels, predictions, weights)
    guesses = guesses.astype(truth.dtype)
    known = jnp.all(_is_class(truth, num_classes) & _is_class(guesses, num_classes))
    # One scatter-add over flat cells; an unknown class must not write outside of the matrix, which is NaN then.
    cell = jnp.where(known, truth * num_classes + guesses, 0)
    matrix = jnp.zeros(num_classes**2, widen(0).dtype).at[cell].add(widen(factors))
    sums = {"total_confusion_matrix": nan_unless(known, matrix.reshape(num_classes, num_classes))}
    return streaming_metric("mean_iou", name or "mean_iou", sums, _mean_iou, metrics_collections, updates_collections)


def _flatten(labels: Tensor, predictions: Tensor, weights: Tensor | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Flattens labels, as integers, predictions and weights."""
    truth = to_array(labels, "labels").astype(jax.dtypes.canonicalize_dtype(jnp.int64)).reshape(-1)
    guesses = to_array(predictions, "predictions").reshape(-1)
    factors = jnp.ones(truth.shape) if weights is None else to_array(weights, "weights").astype(jnp.float32).reshape(-1)
    # TensorFlow's scatter_add broadcasts one weight, whatever its rank.
    if factors.size == 1:
        factors = jnp.broadcast_to(factors, truth.shape)
    if not truth.size == guesses.size == factors.size:
        raise ArgumentError(
            f"There are as many predictions and weights as labels. Received: {truth.size} labels, {guesses.size} "
            f"predictions, {factors.size} weights."
        )
    return truth, guesses, factors


def _is_class(values: jax.Array, count: int) -> jax.Array:
    return (values >= 0) & (values < count)


def _sum_of(chosen: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(chosen, weights[:, None], 0), axis=0)


def _mean_accuracy(total: jax.Array, count: jax.Array) -> jax.Array:
    # `ratio` would turn a NaN count into 0.
    return jnp.mean(jnp.where(jnp.isnan(total), jnp.nan, ratio(count, total)))


def _mean_iou(total_confusion_matrix: jax.Array) -> jax.Array:
    both = jnp.diag(total_confusion_matrix)
    union = jnp.sum(total_confusion_matrix, 0) + jnp.sum(total_confusion_matrix, 1) - both
    present = jnp.sum(union != 0)
    mean = jnp.sum(both / jnp.where(union > 0, union, 1)) / jnp.maximum(present, 1)
    return mean.astype(jnp.float32)
