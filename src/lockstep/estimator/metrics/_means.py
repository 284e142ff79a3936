"""Means over examples, of values, errors and hits, and means over classes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator.metrics._streaming import (
    Collections,
    PairMetric,
    align,
    align_rank,
    broadcast_weights,
    nan_unless,
    ratio,
    streaming_metric,
    to_array,
    widen,
)


def _weighted_sums(values: jax.Array, weights: Tensor | None) -> dict[str, jax.Array]:
    """Returns a batch's summands of a mean: the weighted sum, and the sum of the weights."""
    values = values.astype(jnp.float32)
    # float32, TensorFlow's type of sums, whatever the values: an int8 sum would wrap around.
    ranked = align_rank(weights, values)
    if ranked is None:
        return {"total": jnp.sum(values), "count": jnp.float32(values.size)}
    factors = broadcast_weights(ranked, values)
    return {"total": jnp.sum(values * factors), "count": jnp.sum(factors)}


def mean(
    values: Tensor,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weighted mean of values.

    Args:
        values: Numbers of any shape.
        weights: The weight of each value: a number, or an array of the same rank, each size 1 or that of `values`.
            `None` for 1.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float32 of no dimensions; 0 if the weights' sum is 0.

    Source: tf.compat.v1.metrics.mean.
    """
    sums = _weighted_sums(to_array(values, "values"), weights)
    return streaming_metric("mean", name or "mean", sums, ratio, metrics_collections, updates_collections)


def _error_metric(
    function: str,
    summary: str,
    error: Callable[[jax.Array, jax.Array], jax.Array],
    compute: Callable[..., jax.Array] = ratio,
    kind: str = "values",
) -> PairMetric:
    """Returns the public function of one mean over pairs of a label and a prediction.

    `summary` begins its docstring, where labels and predictions are called `kind`. `error` takes labels and
    predictions, `compute` the sums `total` and `count`.
    """

    def metric(
        labels: Tensor,
        predictions: Tensor,
        weights: Tensor | None = None,
        metrics_collections: Collections = None,
        updates_collections: Collections = None,
        name: str | None = None,
    ) -> MetricOp:
        truth, guesses, factors = align(labels, predictions, weights)
        sums = _weighted_sums(error(truth, guesses), factors)
        return streaming_metric(function, name or function, sums, compute, metrics_collections, updates_collections)

    metric.__name__ = metric.__qualname__ = function
    metric.__doc__ = f"""{summary}

    Args:
        labels: The right {kind}, of any shape.
        predictions: Predicted {kind}, of the same shape.
        weights: The weight of each pair, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Name of the metric.

    Source: tf.compat.v1.metrics.{function}.
    """
    return metric


accuracy = _error_metric(
    "accuracy",
    "Returns the share of predictions that equal their labels, compared in the type of `labels`.",
    # tf.compat.v1.metrics.accuracy casts predictions: 2.7 counts as a hit for the label 2.
    lambda labels, predictions: predictions.astype(labels.dtype) == labels,
    kind="classes",
)
mean_absolute_error = _error_metric(
    "mean_absolute_error",
    "Returns the mean absolute difference between predictions and labels.",
    lambda labels, predictions: jnp.abs(predictions - labels),
)
mean_squared_error = _error_metric(
    "mean_squared_error",
    "Returns the mean squared difference between predictions and labels.",
    lambda labels, predictions: jnp.square(labels - predictions),
)
root_mean_squared_error = _error_metric(
    "root_mean_squared_error",
    "Returns the square root of the mean squared difference between predictions and labels.",
    lambda labels, predictions: jnp.square(labels - predictions),
    # The root of the mean over all batches, not a mean of the batches' roots.
    lambda total, count: jnp.sqrt(ratio(total, count)),
)


def mean_relative_error(
    labels: Tensor,
    predictions: Tensor,
    normalizer: Tensor,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the mean absolute difference between predictions and labels, each divided by its normalizer.

    Args:
        labels: The right values, of any shape.
        predictions: Predicted values, of the same shape.
        normalizer: Divisors, of the same shape; where one is 0, the error counts as 0.
        weights: The weight of each pair, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Name of the metric.

    Source: tf.compat.v1.metrics.mean_relative_error.
    """
    truth, guesses, factors = align(labels, predictions, weights)
    divisors, guesses, _ = align(normalizer, guesses, None)
    # The normalizer may be of the labels' shape, which `align` has squeezed. TensorFlow counts its zeros as no error.
    errors = jnp.where(divisors == 0, 0, jnp.abs(truth - guesses) / jnp.where(divisors == 0, 1, divisors))
    sums = _weighted_sums(errors, factors)
    name = name or "mean_relative_error"
    return streaming_metric("mean_relative_error", name, sums, ratio, metrics_collections, updates_collections)


def mean_cosine_distance(
    labels: Tensor,
    predictions: Tensor,
    dim: int,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns one minus the mean cosine between predictions and labels, which must have length 1.

    Args:
        labels: The right vectors, of any shape.
        predictions: Predicted vectors, of the same shape.
        dim: The dimension along which the vectors lie.
        weights: The weight of each pair, see `mean`; of size 1 along `dim`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Name of the metric.

    Source: tf.compat.v1.metrics.mean_cosine_distance.
    """
    truth, guesses, factors = align(labels, predictions, weights)
    sums = _weighted_sums(jnp.sum(guesses * truth, axis=dim, keepdims=True), factors)
    compute: Callable[..., jax.Array] = lambda total, count: 1 - ratio(total, count)  # noqa: E731
    name = name or "mean_cosine_distance"
    return streaming_metric("mean_cosine_distance", name, sums, compute, metrics_collections, updates_collections)


def percentage_below(
    values: Tensor,
    threshold: float | Tensor,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the share of values below a threshold, from 0 to 1.

    Args:
        values: Numbers of any shape.
        threshold: A number.
        weights: The weight of each value, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Name of the metric.

    Source: tf.compat.v1.metrics.percentage_below.
    """
    sums = _weighted_sums(to_array(values, "values") < threshold, weights)
    # TensorFlow's name of the metric, unlike that of the function.
    name = name or "percentage_below_threshold"
    return streaming_metric("percentage_below", name, sums, ratio, metrics_collections, updates_collections)


def mean_tensor(
    values: Tensor,
    weights: Tensor | None = None,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the weighted mean over batches of each element.

    Args:
        values: Numbers, of the same shape in each batch.
        weights: The weight of each element, see `mean`.
        metrics_collections: See `mean`.
        updates_collections: See `mean`.
        name: Name of the metric.

    Returns:
        A float32 of the shape of `values`.

    Source: tf.compat.v1.metrics.mean_tensor.
    """
    numbers = to_array(values, "values").astype(jnp.float32)
    ranked = align_rank(weights, numbers)
    factors = jnp.ones_like(numbers) if ranked is None else broadcast_weights(ranked, numbers)
    # The names of TensorFlow's variables: checkpoints and `get_variable_names` show them.
    sums = {"total_tensor": numbers * factors, "count_tensor": factors}
    compute: Callable[..., jax.Array] = lambda total_tensor, count_tensor: ratio(total_tensor, count_tensor)  # noqa: E731
    return streaming_metric("mean_tensor", name or "mean", sums, compute, metrics_collections, updates_collections)


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
    known = jnp.all((truth >= 0) & (truth < num_classes))
    member = truth[:, None] == jnp.arange(num_classes)
    hits = member & (guesses.astype(truth.dtype) == truth)[:, None]
    # By class; predictions that are no class are misses, and no error in TensorFlow either.
    total, count = (jnp.sum(jnp.where(chosen, factors[:, None], 0), axis=0) for chosen in (member, hits))
    sums = {"total": nan_unless(known, total), "count": nan_unless(known, count)}

    def compute(total: jax.Array, count: jax.Array) -> jax.Array:
        # `ratio` would turn a NaN count into 0.
        return jnp.mean(jnp.where(jnp.isnan(total), jnp.nan, ratio(count, total)))

    name = name or "mean_accuracy"
    return streaming_metric("mean_per_class_accuracy", name, sums, compute, metrics_collections, updates_collections)


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
    known = jnp.all((truth >= 0) & (truth < num_classes) & (guesses >= 0) & (guesses < num_classes))
    # One scatter-add over flat cells; an unknown class must not write outside of the matrix, which is NaN then.
    cell = jnp.where(known, truth * num_classes + guesses, 0)
    matrix = jnp.zeros(num_classes**2, widen(0).dtype).at[cell].add(widen(factors))
    sums = {"total_confusion_matrix": nan_unless(known, matrix.reshape(num_classes, num_classes))}

    def compute(total_confusion_matrix: jax.Array) -> jax.Array:
        both = jnp.diag(total_confusion_matrix)
        union = jnp.sum(total_confusion_matrix, 0) + jnp.sum(total_confusion_matrix, 1) - both
        # TensorFlow's mean over classes that occur in labels or predictions; the others have no union.
        present = jnp.sum(union != 0)
        mean = jnp.sum(both / jnp.where(union > 0, union, 1)) / jnp.maximum(present, 1)
        return mean.astype(jnp.float32)

    return streaming_metric("mean_iou", name or "mean_iou", sums, compute, metrics_collections, updates_collections)


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
