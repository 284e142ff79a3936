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
    metric: Any = keras.metrics.Metric
    metric.__init__ = _with_name_before_dtype(metric.__init__)
    metric.reset_states = _reset_states
    metric.add_weight = _with_name_first(metric.add_weight)


def _with_name_before_dtype(original: Callable[..., None]) -> Callable[..., None]:
    """Lets the constructor take Keras 2's arguments, name and dtype; Keras 3's are dtype and name."""

    @functools.wraps(original)
    def __init__(self: Metric, *args: Argument, **kwargs: Argument) -> None:
        # "float32" as first argument is Keras 3's dtype; any other text is a name.
        if args and isinstance(args[0], str) and not _is_dtype(args[0]):
            kwargs = {**dict(zip(("name", "dtype"), args, strict=False)), **kwargs}
            args = args[2:]
        original(self, *args, **kwargs)

    return __init__


def _is_dtype(name: str) -> bool:
    try:
        keras.dtype_policies.get(name)
    except ValueError:
        return False
    return True


def _reset_states(self: Metric) -> None:
    """Resets the state, as `reset_state` of Keras 3."""
    self.reset_state()


def _with_name_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `add_weight` take the name first, and Keras 2's options of replicas."""

    @functools.wraps(original)
    def add_weight(self: Metric, *args: Argument, **kwargs: Argument) -> Any:
        # A metric's state is summed over the replicas whatever these two say.
        kwargs.pop("synchronization", None)
        kwargs.pop("aggregation", None)
        if args and isinstance(args[0], str):
            kwargs["name"], args = args[0], args[1:2]
        return original(self, *args, **kwargs)

    return add_weight


def _install_loss() -> None:
    # A function of the module: every loss asks it, also those that Keras makes of a configuration.
    module: Any = keras_loss
    original = module.standardize_reduction

    @functools.wraps(original)
    def standardize_reduction(reduction: str | None) -> Any:
        # Keras 2 chose by context. In compile and fit, and outside of a strategy, it chose this one.
        return original("sum_over_batch_size" if reduction == "auto" else reduction)

    module.standardize_reduction = standardize_reduction
