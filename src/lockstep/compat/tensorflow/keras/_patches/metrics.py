"""Metrics with Keras 2's order of arguments and names of methods, and losses with its `reduction="auto"`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras.src.losses import loss as keras_loss
from keras.src.metrics import iou_metrics

from lockstep._types import Metric
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import adds, replaces


@replaces(keras.metrics.Metric, "__init__")
def _take_name_first(original: Callable[..., None], self: Metric, *args: Argument, **kwargs: Argument) -> None:
    """Takes Keras 2's arguments, name and dtype; Keras 3's are dtype and name."""
    # "float32" as first argument is Keras 3's dtype; any other text is a name.
    if args and isinstance(args[0], str) and not _is_dtype(args[0]):
        kwargs = {**dict(zip(("name", "dtype"), args, strict=False)), **kwargs}
        args = args[2:]
    original(self, *args, **kwargs)


def _is_dtype(name: str) -> bool:
    try:
        keras.dtype_policies.get(name)
    except ValueError:
        return False
    return True


@replaces(iou_metrics._IoUBase, "__init__")  # pyright: ignore[reportPrivateUsage]
def _count_in_floats(original: Callable[..., None], self: Metric, *args: Argument, **kwargs: Argument) -> None:
    """Counts in floats as Keras 2: in Keras 3's integers weights of examples below one are nothing."""
    original(self, *args, **{**kwargs, "dtype": kwargs.get("dtype") or keras.config.floatx()})


@adds(keras.metrics.Metric, "reset_states")
def _reset_states(self: Metric) -> None:
    """Resets the state, as `reset_state` of Keras 3."""
    self.reset_state()


@replaces(keras.metrics.Metric, "add_weight")
def _add_weight(original: Callable[..., Any], self: Metric, *args: Argument, **kwargs: Argument) -> Any:
    """Takes the name first, and Keras 2's options of replicas."""
    # A metric's state is summed over the replicas whatever these two say.
    kwargs.pop("synchronization", None)
    kwargs.pop("aggregation", None)
    if args and isinstance(args[0], str):
        kwargs["name"], args = args[0], args[1:2]
    return original(self, *args, **kwargs)


# A function of the module: every loss asks it, also those that Keras makes of a configuration.
_standardize_reduction = keras_loss.standardize_reduction


@functools.wraps(_standardize_reduction)
def _allow_auto(reduction: str | None) -> Any:
    # Keras 2 chose by context. In compile and fit, and outside of a strategy, it chose this one.
    return _standardize_reduction("sum_over_batch_size" if reduction == "auto" else reduction)


keras_loss.standardize_reduction = _allow_auto
