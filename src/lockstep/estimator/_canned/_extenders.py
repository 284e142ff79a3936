"""Further metrics for an estimator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lockstep.errors import ArgumentError
from lockstep.estimator._estimator import Estimator, engine_of
from lockstep.estimator._mode_keys import ModeKeys

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]) -> Estimator:
    """Returns an estimator that evaluates further metrics.

    Args:
        estimator: Which else does the same, with the same model_dir.
        metric_fn: A function of some of features, labels, predictions and config that returns metrics by name: results
            of `lockstep.metrics`, or keras.metrics.Metric objects that it has updated. They take precedence over
            metrics of the same name.

    Raises:
        ArgumentError: If metric_fn takes other arguments.

    Source: tf.estimator.add_metrics.
    """
    names = _checked_names(metric_fn)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        given = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        found = metric_fn(**{name: given[name] for name in names})
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **found})

    warm_start = engine_of(estimator).warm_start
    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=warm_start)


def _checked_names(metric_fn: Any) -> list[str]:
    names = list(inspect.signature(metric_fn).parameters) if callable(metric_fn) else []
    if not callable(metric_fn) or set(names) - set(_ARGUMENTS):
        raise ArgumentError(
            f"metric_fn must be a function of some of {', '.join(_ARGUMENTS)}. Received: {metric_fn!r} with the "
            f"arguments {names}."
        )
    return names
