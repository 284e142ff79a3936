"""Means over examples: of values, of errors, of hits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator.metrics._shapes import align, align_rank, broadcast_weights, to_array
from lockstep.estimator.metrics._streaming import Collections, streaming_metric


class _ErrorMetric(Protocol):
    """The signature of the means over pairs of a label and a prediction."""

    def __call__(
        self,
        labels: Tensor,
        predictions: Tensor,
        weights: Tensor | None = None,
        metrics_collections: Collections = None,
        updates_collections: Collections = None,
        name: str | None = None,
    ) -> MetricOp: ...


def ratio(total: jax.Array, count: jax.Array) -> jax.Array:
    """Returns `total / count`; 0 where the count is 0."""
    # The inner where keeps the division finite: a NaN in the branch not taken would still make gradients NaN.
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 0)


def weighted_sums(values: jax.Array, weights: Tensor | None) -> dict[str, jax.Array]:
    """Returns a batch's summands of a mean: the weighted sum, and the sum of the weights."""
    values = values.astype(jnp.float32)
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
    sums = weighted_sums(to_array(values, "values"), weights)
    return streaming_metric("mean", name or "mean", sums, ratio, metrics_collections, updates_collections)


def _error_metric(
    function: str,
    summary: str,
    error: Callable[[jax.Array, jax.Array], jax.Array],
    compute: Callable[..., jax.Array] = ratio,
    kind: str = "values",
) -> _ErrorMetric:
    """Returns the public function of one mean over pairs of a label and a prediction.

    Args:
        function: Its name.
        summary: The first sentence of its docstring.
        error: Computes each pair's error from labels and predictions.
        compute: Computes the result from the sums `total` and `count`.
        kind: Noun for labels and predictions in its docstring.
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
        sums = weighted_sums(error(truth, guesses), factors)
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
    errors = jnp.where(divisors == 0, 0, jnp.abs(truth - guesses) / jnp.where(divisors == 0, 1, divisors))
    sums = weighted_sums(errors, factors)
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
    sums = weighted_sums(jnp.sum(guesses * truth, axis=dim, keepdims=True), factors)
    return streaming_metric(
        "mean_cosine_distance",
        name or "mean_cosine_distance",
        sums,
        lambda total, count: 1 - ratio(total, count),
        metrics_collections,
        updates_collections,
    )


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
    sums = weighted_sums(to_array(values, "values") < threshold, weights)
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
    return streaming_metric(
        "mean_tensor",
        name or "mean",
        sums,
        lambda total_tensor, count_tensor: ratio(total_tensor, count_tensor),
        metrics_collections,
        updates_collections,
    )
