"""Means over examples: of values, of errors, of hits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lockstep._model_fn.records import MetricOp
from lockstep.metrics._shapes import aligned, array_of, broadcast, ranked
from lockstep.metrics._streaming import Report


def ratio(total: jax.Array, count: jax.Array) -> jax.Array:
    """Returns a mean; 0 if nothing counts."""
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 0)


def root_ratio(total: jax.Array, count: jax.Array) -> jax.Array:
    """Returns the root of a mean."""
    return jnp.sqrt(ratio(total, count))


def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean of values, weighted.

    Args:
        values: Numbers of any shape.
        weights: What each counts: a number, or an array of the same rank, each size 1 or that of `values`. `None` for
            1.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float32 of no dimensions; 0 if the weights add up to 0.

    Source: tf.compat.v1.metrics.mean.
    """
    report = Report("mean", name or "mean", metrics_collections, updates_collections)
    return report(mean_sums(array_of(values, "values"), weights), ratio)


def mean_sums(values: jax.Array, weights: Any) -> dict[str, jax.Array]:
    """Returns what a batch adds to a mean: the weighted sum, and the sum of the weights."""
    values = values.astype(jnp.float32)
    found = ranked(weights, values)
    if found is None:
        return {"total": jnp.sum(values), "count": jnp.float32(values.size)}
    counted = broadcast(found, values)
    return {"total": jnp.sum(values * counted), "count": jnp.sum(counted)}


def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns how often predictions equal labels.

    Args:
        labels: The right classes, of any shape.
        predictions: Classes, of the same shape; they are compared in the type of `labels`.
        weights: What each counts, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.accuracy.
    """
    report = Report("accuracy", name or "accuracy", metrics_collections, updates_collections)
    labels, predictions, weights = aligned(labels, predictions, weights)
    return report(mean_sums(predictions.astype(labels.dtype) == labels, weights), ratio)


def mean_absolute_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean distance of predictions from labels.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: What each counts, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.mean_absolute_error.
    """
    report = Report("mean_absolute_error", name or "mean_absolute_error", metrics_collections, updates_collections)
    labels, predictions, weights = aligned(labels, predictions, weights)
    return report(mean_sums(jnp.abs(predictions - labels), weights), ratio)


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean of squared differences between predictions and labels.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: What each counts, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.mean_squared_error.
    """
    report = Report("mean_squared_error", name or "mean_squared_error", metrics_collections, updates_collections)
    labels, predictions, weights = aligned(labels, predictions, weights)
    return report(mean_sums(jnp.square(labels - predictions), weights), ratio)


def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the root of the mean of squared differences between predictions and labels.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: What each counts, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.root_mean_squared_error.
    """
    report = Report(
        "root_mean_squared_error", name or "root_mean_squared_error", metrics_collections, updates_collections
    )
    labels, predictions, weights = aligned(labels, predictions, weights)
    return report(mean_sums(jnp.square(labels - predictions), weights), root_ratio)


def mean_relative_error(
    labels: Any,
    predictions: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean distance of predictions from labels, each divided by a size of its own.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        normalizer: By what to divide, of the same shape; where it is 0, the error counts as 0.
        weights: What each counts, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.mean_relative_error.
    """
    report = Report("mean_relative_error", name or "mean_relative_error", metrics_collections, updates_collections)
    labels, predictions, weights = aligned(labels, predictions, weights)
    size, predictions, _ = aligned(normalizer, predictions, None)
    errors = jnp.where(size == 0, 0, jnp.abs(labels - predictions) / jnp.where(size == 0, 1, size))
    return report(mean_sums(errors, weights), ratio)


def mean_cosine_distance(
    labels: Any,
    predictions: Any,
    dim: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns one minus the mean cosine between predictions and labels, which must have length 1.

    Args:
        labels: The right vectors, of any shape.
        predictions: Vectors, of the same shape.
        dim: The dimension along which the vectors lie.
        weights: What each counts, see `mean`; of size 1 along `dim`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.mean_cosine_distance.
    """
    report = Report("mean_cosine_distance", name or "mean_cosine_distance", metrics_collections, updates_collections)
    labels, predictions, weights = aligned(labels, predictions, weights)
    cosines = jnp.sum(predictions * labels, axis=dim, keepdims=True)
    return report(mean_sums(cosines, weights), lambda total, count: 1 - ratio(total, count))


def percentage_below(
    values: Any,
    threshold: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns which part of the values is below a threshold.

    Args:
        values: Numbers of any shape.
        threshold: A number.
        weights: What each counts, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Source: tf.compat.v1.metrics.percentage_below.
    """
    report = Report("percentage_below", name or "percentage_below_threshold", metrics_collections, updates_collections)
    return report(mean_sums(array_of(values, "values") < threshold, weights), ratio)


def mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean over batches of each element, weighted.

    Args:
        values: Numbers, of the same shape in each batch.
        weights: What each counts, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Of the metric.

    Returns:
        A float32 of the shape of `values`.

    Source: tf.compat.v1.metrics.mean_tensor.
    """
    report = Report("mean_tensor", name or "mean", metrics_collections, updates_collections)
    numbers = array_of(values, "values").astype(jnp.float32)
    found = ranked(weights, numbers)
    counted = jnp.ones_like(numbers) if found is None else broadcast(found, numbers)
    return report({"total_tensor": numbers * counted, "count_tensor": counted}, _tensor_ratio)


def _tensor_ratio(total_tensor: jax.Array, count_tensor: jax.Array) -> jax.Array:
    return ratio(total_tensor, count_tensor)
