"""Metrics with Keras 2's method names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras


def install() -> None:
    """Completes `keras.metrics.Metric`."""
    metric: Any = keras.metrics.Metric
    metric.__init__ = _naming(metric.__init__)
    metric.reset_states = _reset_states
    metric.add_weight = _naming_first(metric.add_weight)


def _naming(theirs: Callable[..., None]) -> Callable[..., None]:
    """Keras 2's arguments are name and dtype, Keras 3's dtype and name."""

    @functools.wraps(theirs)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
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


def _reset_states(self: Any) -> None:
    """Keras 2's first name of `reset_state`."""
    self.reset_state()


def _naming_first(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Keras 2's first argument is the name, then shape, aggregation, synchronization, initializer, dtype."""

    @functools.wraps(theirs)
    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("synchronization", None)
        kwargs.pop("aggregation", None)
        if args and isinstance(args[0], str):
            kwargs["name"], args = args[0], args[1:2]
        return theirs(self, *args, **kwargs)

    return add_weight
