"""Areas under curves, and points on them, that thresholds draw."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._model_fn.records import MetricOp
from lockstep.errors import ArgumentError
from lockstep.metrics._streaming import Report
from lockstep.metrics._thresholds import confusion_at

# TensorFlow's: the first thresholds are beyond 0 and 1, and the divisors beyond 0, by these.
_BEYOND = 1e-7
_EPSILON = 1e-6
# How the height of a strip follows from those of its two sides.
_HEIGHTS: dict[str, Callable[[Any, Any], Any]] = {
    "trapezoidal": lambda left, right: (left + right) / 2,
    "careful_interpolation": lambda left, right: (left + right) / 2,
    "minoring": jnp.minimum,
    "majoring": jnp.maximum,
}
_log = logging.getLogger("lockstep")


def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> MetricOp:
    """Returns the area under a curve.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape.
        weights: What each counts, see `mean`.
        num_thresholds: How many points the curve is drawn by.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        curve: "ROC", recall over the part of the false examples that was predicted to be true; or "PR", precision over
            recall.
        name: Of the metric.
        summation_method: "trapezoidal"; "careful_interpolation", right for "PR", too; "minoring" and "majoring", which
            are bounds.
        thresholds: Those to draw by, besides 0 and 1; `None` for `num_thresholds` at even distances.

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
        _warn_of_trapezoids()
    report = Report("auc", name or "auc", metrics_collections, updates_collections)
    inner = _even(num_thresholds) if thresholds is None else sorted(thresholds)
    points = [-_BEYOND, *inner, 1 + _BEYOND]
    return report(confusion_at(labels, predictions, points, weights), _area(curve, summation_method))


@functools.cache
def _warn_of_trapezoids() -> None:
    """Warns once: a model_fn is called many times."""
    _log.warning(
        'Trapezoidal rule is known to produce incorrect PR-AUCs; please switch to "careful_interpolation" instead.'
    )


def _even(count: int) -> list[float]:
    if count < 2:
        raise ArgumentError(f"num_thresholds must be at least 2. Received: {count}.")
    return [(i + 1) / (count - 1) for i in range(count - 2)]


def _area(curve: str, method: str) -> Callable[..., jax.Array]:
    if curve == "PR" and method == "careful_interpolation":
        return _interpolated
    height = _HEIGHTS[method]

    def area(
        true_positives: jax.Array, false_negatives: jax.Array, true_negatives: jax.Array, false_positives: jax.Array
    ) -> jax.Array:
        recall = (true_positives + _EPSILON) / (true_positives + false_negatives + _EPSILON)
        if curve == "ROC":
            x, y = false_positives / (false_positives + true_negatives + _EPSILON), recall
        else:
            x, y = recall, (true_positives + _EPSILON) / (true_positives + false_positives + _EPSILON)
        return jnp.sum((x[:-1] - x[1:]) * height(y[:-1], y[1:]))

    return area


def _interpolated(
    true_positives: jax.Array, false_negatives: jax.Array, true_negatives: jax.Array, false_positives: jax.Array
) -> jax.Array:
    """The area under precision over recall, if between two points the counts change evenly.

    Between points A and B let TP be a straight line in P = TP + FP, with slope s and intercept i. Then the integral of
    precision TP / P over TP is s * (TP_B - TP_A + i * log(P_B / P_A)).
    """
    tp, positives = true_positives, true_positives + false_positives
    gained = tp[:-1] - tp[1:]
    slope = _over(gained, jnp.maximum(positives[:-1] - positives[1:], 0))
    intercept = tp[1:] - slope * positives[1:]
    both = (positives[:-1] > 0) & (positives[1:] > 0)
    growth = jnp.where(both, _over(positives[:-1], jnp.maximum(positives[1:], 0)), 1)
    strips = _over(slope * (gained + intercept * jnp.log(growth)), jnp.maximum(tp[1:] + false_negatives[1:], 0))
    return jnp.sum(strips)


def _over(value: jax.Array, divisor: jax.Array) -> jax.Array:
    return jnp.where(divisor == 0, 0, value / jnp.where(divisor == 0, 1, divisor))


def sensitivity_at_specificity(
    labels: Any,
    predictions: Any,
    specificity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the sensitivity at the threshold whose specificity is nearest to the one wanted.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape.
        specificity: From 0 to 1: which part of the false examples is to be predicted to be false.
        weights: What each counts, see `mean`.
        num_thresholds: Among how many thresholds to choose.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float32 of no dimensions; NaN once a prediction was not from 0 to 1.

    Raises:
        ArgumentError: If `specificity` is not from 0 to 1.

    Source: tf.compat.v1.metrics.sensitivity_at_specificity.
    """
    _check_part("specificity", specificity)
    report = Report(
        "sensitivity_at_specificity", name or "sensitivity_at_specificity", metrics_collections, updates_collections
    )
    points = [-_BEYOND, *_even(num_thresholds), 1 + _BEYOND]

    def compute(
        true_positives: jax.Array, false_negatives: jax.Array, true_negatives: jax.Array, false_positives: jax.Array
    ) -> jax.Array:
        found = true_negatives / (true_negatives + false_positives + _BEYOND)
        nearest = jnp.argmin(jnp.abs(found - specificity))
        return true_positives[nearest] / (true_positives[nearest] + false_negatives[nearest] + _BEYOND)

    return report(confusion_at(labels, predictions, points, weights), compute)


def specificity_at_sensitivity(
    labels: Any,
    predictions: Any,
    sensitivity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> MetricOp:
    """Returns the specificity at the highest threshold whose sensitivity is nearest to the one wanted.

    Args:
        labels: Zero for false, of any shape.
        predictions: From 0 to 1, of the same shape.
        sensitivity: From 0 to 1: which part of the true examples is to be predicted to be true.
        weights: What each counts, see `mean`.
        num_thresholds: Among how many thresholds to choose.
        metrics_collections: Names of collections that get the result.
        updates_collections: The same, for the update.
        name: Of the metric.

    Returns:
        A float32 of no dimensions; NaN once a prediction was not from 0 to 1.

    Raises:
        ArgumentError: If `sensitivity` is not from 0 to 1.

    Source: tf.compat.v1.metrics.specificity_at_sensitivity.
    """
    _check_part("sensitivity", sensitivity)
    report = Report(
        "specificity_at_sensitivity", name or "specificity_at_sensitivity", metrics_collections, updates_collections
    )
    points = [-_BEYOND, *_even(num_thresholds), 1 - _BEYOND]

    def compute(
        true_positives: jax.Array, false_negatives: jax.Array, true_negatives: jax.Array, false_positives: jax.Array
    ) -> jax.Array:
        distance = jnp.abs(true_positives / (true_positives + false_negatives + _BEYOND) - sensitivity)
        nearest = len(points) - 1 - jnp.argmin(distance[::-1])
        return true_negatives[nearest] / (true_negatives[nearest] + false_positives[nearest] + _BEYOND)

    return report(confusion_at(labels, predictions, points, weights), compute)


def _check_part(what: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ArgumentError(f"{what} must be from 0 to 1. Received: {value}.")
