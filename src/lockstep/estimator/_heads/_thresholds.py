"""Metrics of probabilities, at thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras

from lockstep.errors import ArgumentError
from lockstep.estimator._heads import _keys
from lockstep.estimator._heads._loss_head import metric_name


def check_thresholds(thresholds: Iterable[float] | None) -> tuple[float, ...]:
    """Checks thresholds.

    Raises:
        ArgumentError: If one is not between 0 and 1.
    """
    values = tuple(thresholds or ())
    if not all(0 < threshold < 1 for threshold in values):
        raise ArgumentError(f"thresholds must lie between 0 and 1. Received: {values!r}.")
    return values


def threshold_metrics(thresholds: Iterable[float]) -> dict[str, Any]:
    """Returns accuracy, precision and recall for each threshold."""
    metrics: dict[str, Any] = {}
    for threshold in thresholds:
        name: Callable[[str], str] = lambda kind, at=threshold: _keys.at_threshold(kind, at)  # noqa: E731
        metrics[name(_keys.ACCURACY)] = keras.metrics.BinaryAccuracy("accuracy_at", threshold=threshold)
        metrics[name(_keys.PRECISION)] = keras.metrics.Precision(threshold, name="precision_at")
        metrics[name(_keys.RECALL)] = keras.metrics.Recall(threshold, name="recall_at")
    return metrics


def curves(auc: str = _keys.AUC, precision_recall: str = _keys.AUC_PR) -> dict[str, Any]:
    """Returns the areas under the ROC curve and the precision-recall curve."""
    return {
        auc: keras.metrics.AUC(name=metric_name(auc)),
        precision_recall: keras.metrics.AUC(curve="PR", name=metric_name(precision_recall)),
    }
