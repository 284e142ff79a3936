"""Areas under ROC and precision-recall curves, and points on them, by thresholds."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from lockstep._types import Array, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator.metrics._confusion import confusion_at
from lockstep.estimator.metrics._streaming import Collections, streaming_metric

# TensorFlow's `_EPSILON` and the 1e-6 of `auc`: outer thresholds lie beyond 0 and 1, so that each has all predictions
# on one side, and divisors stay above 0.
_BEYOND = 1e-7
_EPSILON = 1e-6
# The height of a strip, from the curve's heights at its two sides.
_HEIGHTS: dict[str, Callable[[Array, Array], Array]] = {
    "trapezoidal": lambda left, right: (left + right) / 2,
    "careful_interpolation": lambda left, right: (left + right) / 2,
    "minoring": jnp.minimum,
    "majoring": jnp.maximum,
}
_log = logging.getLogger("lockstep")


def auc(
    labels: Tensor,
    predictions: Tensor,
    weights: Tensor | None = None,
    num_thresholds: int = 200,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> MetricOp:
    """Returns the area under a curve.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape.
        weights: The weight of each example, see `mean`.
        num_thresholds: Number of points of the curve.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        curve: "ROC", recall over the false positive rate; or "PR", precision over
            recall.
        name: Name of the metric.
        summation_method: "trapezoidal"; "careful_interpolation", right for "PR", too; "minoring" and "majoring", which
            are bounds.
        thresholds: Thresholds besides 0 and 1; `None` for `num_thresholds` at even distances.

    Returns:
        A float32 of no dimensions; NaN once a prediction was not from 0 to 1.

    Raises:
        ArgumentError: For another curve or summation.

    Source: tf.compat.v1.metrics.auc.
    """
    if curve not in ("ROC", "PR"):
        raise ArgumentError(f"curve is 'ROC' or 'PR'. Received: {curve!r}.")
    if summation_method not in _HEIGHTS:
        raise ArgumentError(f"summation_method is one of {', '.join(_HEIGHTS)}. Received: {summation_method!r}.")
    if curve == "PR" and summation_method == "trapezoidal":
        _warn_about_trapezoids()
    inner = _even_thresholds(num_thresholds) if thresholds is None else sorted(thresholds)
    points = [-_BEYOND, *inner, 1 + _BEYOND]
    sums = confusion_at(labels, predictions, points, weights)
    is_interpolated = curve == "PR" and summation_method == "careful_interpolation"
    compute = _interpolate_area if is_interpolated else _area(curve, summation_method)
    return streaming_metric("auc", name or "auc", sums, compute, metrics_collections, updates_collections)


@functools.cache
def _warn_about_trapezoids() -> None:
    # Once per process, since a model_fn is called once per mode and per tracing. The words are TensorFlow's.
    _log.warning(
        'Trapezoidal rule is known to produce incorrect PR-AUCs; please switch to "careful_interpolation" instead.'
    )


def _even_thresholds(count: int) -> list[float]:
    if count < 2:
        raise ArgumentError(f"num_thresholds must be at least 2. Received: {count}.")
    return [(i + 1) / (count - 1) for i in range(count - 2)]


def _area(curve: str, method: str) -> Callable[..., jax.Array]:
    """Returns the area by strips between neighbouring thresholds, from the counts at thresholds."""

    def area(
        true_positives: jax.Array, false_negatives: jax.Array, true_negatives: jax.Array, false_positives: jax.Array
    ) -> jax.Array:
        # TensorFlow's epsilon in the numerators, too: without any true example recall is 1, and so is precision.
        recall = (true_positives + _EPSILON) / (true_positives + false_negatives + _EPSILON)
        if curve == "ROC":
            x, y = false_positives / (false_positives + true_negatives + _EPSILON), recall
        else:
            x, y = recall, (true_positives + _EPSILON) / (true_positives + false_positives + _EPSILON)
        # Thresholds ascend, so x descends.
        return jnp.sum((x[:-1] - x[1:]) * _HEIGHTS[method](y[:-1], y[1:]))

    return area


def _interpolate_area(
    true_positives: jax.Array, false_negatives: jax.Array, true_negatives: jax.Array, false_positives: jax.Array
) -> jax.Array:
    """Computes the area under precision over recall, interpolating counts linearly between points.

    Between points A and B let TP be a straight line in P = TP + FP, with slope s and intercept i. Then the integral of
    precision TP / P over TP is s * (TP_B - TP_A + i * log(P_B / P_A)).
    """
    # TensorFlow's `interpolate_pr_auc`, after Davis and Goadrich, 2006: a straight line between points of precision
    # over recall, which the trapezoidal rule draws, is too high.
    # Counts fall along the thresholds, so a point's left neighbour has more; differences below 0 are rounding errors.
    tp, positives = true_positives, true_positives + false_positives
    gained = tp[:-1] - tp[1:]
    slope = _divide(gained, jnp.maximum(positives[:-1] - positives[1:], 0))
    intercept = tp[1:] - slope * positives[1:]
    both = (positives[:-1] > 0) & (positives[1:] > 0)
    growth = jnp.where(both, _divide(positives[:-1], jnp.maximum(positives[1:], 0)), 1)
    strips = _divide(slope * (gained + intercept * jnp.log(growth)), jnp.maximum(tp[1:] + false_negatives[1:], 0))
    return jnp.sum(strips)


def _divide(value: jax.Array, divisor: jax.Array) -> jax.Array:
    return jnp.where(divisor == 0, 0, value / jnp.where(divisor == 0, 1, divisor))


def sensitivity_at_specificity(
    labels: Tensor,
    predictions: Tensor,
    specificity: float,
    weights: Tensor | None = None,
    num_thresholds: int = 200,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the sensitivity at the threshold whose specificity is nearest to the one wanted.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape.
        specificity: From 0 to 1: the wanted share of false examples that are predicted to be false.
        weights: The weight of each example, see `mean`.
        num_thresholds: Number of thresholds to choose from.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float32 of no dimensions; NaN once a prediction was not from 0 to 1.

    Raises:
        ArgumentError: If `specificity` is not from 0 to 1.

    Source: tf.compat.v1.metrics.sensitivity_at_specificity.
    """
    compute = _at_nearest("specificity", specificity)
    sums = confusion_at(labels, predictions, [-_BEYOND, *_even_thresholds(num_thresholds), 1 + _BEYOND], weights)
    name = name or "sensitivity_at_specificity"
    return streaming_metric("sensitivity_at_specificity", name, sums, compute, metrics_collections, updates_collections)


def specificity_at_sensitivity(
    labels: Tensor,
    predictions: Tensor,
    sensitivity: float,
    weights: Tensor | None = None,
    num_thresholds: int = 200,
    metrics_collections: Collections = None,
    updates_collections: Collections = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the specificity at the highest threshold whose sensitivity is nearest to the one wanted.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape.
        sensitivity: From 0 to 1: the wanted share of true examples that are predicted to be true.
        weights: The weight of each example, see `mean`.
        num_thresholds: Number of thresholds to choose from.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.
        name: Name of the metric.

    Returns:
        A float32 of no dimensions; NaN once a prediction was not from 0 to 1.

    Raises:
        ArgumentError: If `sensitivity` is not from 0 to 1.

    Source: tf.compat.v1.metrics.specificity_at_sensitivity.
    """
    compute = _at_nearest("sensitivity", sensitivity)
    # The last threshold is below 1, unlike in `auc`, as in TensorFlow.
    sums = confusion_at(labels, predictions, [-_BEYOND, *_even_thresholds(num_thresholds), 1 - _BEYOND], weights)
    name = name or "specificity_at_sensitivity"
    return streaming_metric("specificity_at_sensitivity", name, sums, compute, metrics_collections, updates_collections)


def _at_nearest(argument: str, wanted: float) -> Callable[..., jax.Array]:
    """Returns the other of sensitivity and specificity at the threshold where `argument` is nearest to `wanted`."""
    if not 0 <= wanted <= 1:
        raise ArgumentError(f"{argument} must be from 0 to 1. Received: {wanted}.")

    def compute(
        true_positives: jax.Array, false_negatives: jax.Array, true_negatives: jax.Array, false_positives: jax.Array
    ) -> jax.Array:
        sensitivity = true_positives / (true_positives + false_negatives + _BEYOND)
        specificity = true_negatives / (true_negatives + false_positives + _BEYOND)
        if argument == "specificity":
            return sensitivity[jnp.argmin(jnp.abs(specificity - wanted))]
        # argmin takes the first of equal distances; TensorFlow takes the last here.
        distance = jnp.abs(sensitivity - wanted)
        return specificity[len(distance) - 1 - jnp.argmin(distance[::-1])]

    return compute
