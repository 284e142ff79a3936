"""Metrics with Keras 2's order of arguments and names of methods, and losses with its `reduction="auto"`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras.src.losses import loss as keras_loss

from lockstep._types import Metric
from lockstep.compat.tensorflow._types import Argument


def install() -> None:
    """Changes `keras.metrics.Metric` and the reductions of `keras.losses.Loss`."""
    _install_metric()
    _install_loss()


def _install_metric() -> None:
    """Completes `keras.metrics.Metric`."""
    metric: Any = keras.metrics.Metric
    metric.__init__ = _accepting_name(metric.__init__)
    metric.reset_states = _reset_states
    metric.add_weight = _accepting_name_first(metric.add_weight)


def _accepting_name(theirs: Callable[..., None]) -> Callable[..., None]:
    """Keras 2's arguments are name and dtype, Keras 3's dtype and name."""

    @functools.wraps(theirs)
    def __init__(self: Metric, *args: Argument, **kwargs: Argument) -> None:
        if args and isinstance(args[0], str) and not _is_dtype(args[0]):
            kwargs = {**dict(zip(("name", "dtype"), args, strict=False)), **kwargs}
            args = args[2:]
        theirs(self, *args, **kwargs)

    return __init__


def _is_dtype(name: str) -> bool:
    try:
        keras.dtype_policies.get(name)
    except ValueError:
        return False
    return True


def _reset_states(self: Metric) -> None:
    """Keras 2's first name of `reset_state`."""
    self.reset_state()


def _accepting_name_first(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Keras 2's first argument is the name, then shape, aggregation, synchronization, initializer, dtype."""

    @functools.wraps(theirs)
    def add_weight(self: Metric, *args: Argument, **kwargs: Argument) -> Any:
        kwargs.pop("synchronization", None)
        kwargs.pop("aggregation", None)
        if args and isinstance(args[0], str):
            kwargs["name"], args = args[0], args[1:2]
        return theirs(self, *args, **kwargs)

    return add_weight


def _install_loss() -> None:
    """Completes what `keras.losses.Loss` takes as a reduction."""
    module: Any = keras_loss
    theirs = module.standardize_reduction

    @functools.wraps(theirs)
    def standardize_reduction(reduction: Any) -> Any:
        # Keras 2 chose by context. In compile and fit, and outside of a strategy, it chose this one.
        return theirs("sum_over_batch_size" if reduction == "auto" else reduction)

    module.standardize_reduction = standardize_reduction
