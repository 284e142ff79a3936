"""Metrics added to an estimator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._estimator import Estimator, core_of
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]) -> Estimator:
    """Returns an estimator with more evaluation metrics.

    Args:
        estimator: An estimator, whose model_dir and config the result shares.
        metric_fn: A function of some of features, labels, predictions and config that returns metrics by name: results
            of `lockstep.estimator.metrics`, or updated keras.metrics.Metric objects. They replace metrics of the same
            name.

    Raises:
        ArgumentError: If metric_fn takes another argument.

    Source: tf.estimator.add_metrics.
    """
    # By name, as TensorFlow: metric_fn takes those of the four arguments that it needs.
    names = list(inspect.signature(metric_fn).parameters) if callable(metric_fn) else []
    if not callable(metric_fn) or set(names) - set(_ARGUMENTS):
        raise ArgumentError(
            f"metric_fn must be a function of some of {', '.join(_ARGUMENTS)}. Received: {metric_fn!r} with the "
            f"arguments {names}."
        )

    def model_fn(features: PyTree, labels: PyTree, mode: str, config: RunConfig) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        # TensorFlow calls metric_fn in evaluation only.
        if mode != ModeKeys.EVAL:
            return spec
        available = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        # In the same trace, after the model_fn: metrics read its predictions without computing them again.
        metrics = metric_fn(**{name: available[name] for name in names})
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **metrics})

    # The result trains too, so it starts as the original would.
    warm_start = core_of(estimator).warm_start
    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=warm_start)
