"""Metrics of heads: what creates them, and which values update them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras

from lockstep._types import Array, Metric
from lockstep.errors import ArgumentError
from lockstep.estimator._heads import _keys


class HeadMetric(NamedTuple):
    """A row of a head's table of metrics; `inputs` are keys of the values that update it, such as labels first."""

    # Not the metric itself: its variables belong to one call of a model_fn.
    create: Callable[[], Any]
    inputs: tuple[Hashable, ...]


class AccuracyBaseline(keras.metrics.Mean):
    """The accuracy of a model that always predicts the more frequent one of two classes, from labels 0 and 1."""

    def result(self) -> Any:
        """Returns the larger of the mean and 1 minus the mean."""
        # tf.estimator.BinaryClassHead: max(label_mean, 1 - label_mean), of the mean over all batches.
        mean: Any = super().result()
        return jnp.maximum(mean, 1 - mean)


def mean_metric(name: str, *inputs: Hashable) -> dict[str, HeadMetric]:
    """Returns the row of a mean."""
    return {name: HeadMetric(partial(keras.metrics.Mean, name=metric_name(name)), inputs)}


def curve_metrics(
    *inputs: Hashable, auc: str = _keys.AUC, precision_recall: str = _keys.AUC_PR
) -> dict[str, HeadMetric]:
    """Returns the rows of the areas under the ROC curve and the precision-recall curve."""
    return {
        auc: HeadMetric(partial(keras.metrics.AUC, name=metric_name(auc)), inputs),
        precision_recall: HeadMetric(
            partial(keras.metrics.AUC, curve="PR", name=metric_name(precision_recall)), inputs
        ),
    }


def threshold_metrics(thresholds: Iterable[float], *inputs: Hashable) -> dict[str, HeadMetric]:
    """Returns the rows of accuracy, precision and recall for each threshold."""
    rows: dict[str, HeadMetric] = {}
    # Keras counts a prediction above the threshold as true, as TensorFlow does.
    for at in thresholds:
        accuracy = partial(keras.metrics.BinaryAccuracy, "accuracy_at", threshold=at)
        rows[_keys.at_threshold(_keys.ACCURACY, at)] = HeadMetric(accuracy, inputs)
        precision = partial(keras.metrics.Precision, at, name="precision_at")
        rows[_keys.at_threshold(_keys.PRECISION, at)] = HeadMetric(precision, inputs)
        recall = partial(keras.metrics.Recall, at, name="recall_at")
        rows[_keys.at_threshold(_keys.RECALL, at)] = HeadMetric(recall, inputs)
    return rows


def check_thresholds(thresholds: Iterable[float] | None) -> tuple[float, ...]:
    """Checks that thresholds lie between 0 and 1."""
    # Neither 0 nor 1: there a metric would be a constant.
    values = tuple(thresholds or ())
    if not all(0 < threshold < 1 for threshold in values):
        raise ArgumentError(f"thresholds must lie between 0 and 1. Received: {values!r}.")
    return values


def metric_name(key: str) -> str:
    """Returns a name for a metric's variables, which must not have a slash."""
    return key.replace("/", "_")


def update(metric: Metric, *values: Array, weights: jax.Array | None = None) -> None:
    """Updates a metric with values of one shape; weights are broadcast to it, `None` stands for 1."""
    shape = jnp.shape(values[0])
    # Flat, each number on its own; Keras would average those of an example first.
    flat = [jnp.asarray(value).reshape(-1) for value in values]
    metric.update_state(*flat, sample_weight=None if weights is None else jnp.broadcast_to(weights, shape).reshape(-1))
