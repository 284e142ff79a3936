"""Optimizers with Keras 2's names for their learning rate and their weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from keras.src.optimizers.base_optimizer import BaseOptimizer


def install() -> None:
    """Completes `keras.optimizers.Optimizer`."""
    optimizer: Any = BaseOptimizer
    optimizer.__init__ = _accepting(optimizer.__init__)
    optimizer.lr = property(_get_learning_rate, _set_learning_rate, doc="Keras 2's short name of `learning_rate`.")
    optimizer.weights = property(lambda self: self.variables, doc="Keras 2's name of `variables`.")
    optimizer.get_weights = _get_weights


def _accepting(theirs: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(theirs)
    def __init__(self: Any, learning_rate: Any = None, *args: Any, **kwargs: Any) -> None:
        rate = kwargs.pop("lr", learning_rate)
        theirs(self, as_rate(rate), *args, **kwargs)

    return __init__


def as_rate(rate: Any) -> Any:
    """Returns a learning rate as Keras 3 wants it: any number becomes a float."""
    if isinstance(rate, (bool, str)) or callable(rate):
        return rate
    if isinstance(rate, Real) or (hasattr(rate, "__float__") and not np.shape(rate)):
        return float(rate)
    return rate


def _get_learning_rate(self: Any) -> Any:
    """Returns the variable, which `K.set_value` and `assign` change; of a schedule, its value at this step."""
    rate = self._learning_rate
    return rate if hasattr(rate, "assign") else self.learning_rate


def _set_learning_rate(self: Any, rate: Any) -> None:
    self.learning_rate = as_rate(rate)


def _get_weights(self: Any) -> list[np.ndarray]:
    """Returns the values of all variables, in the order in which `set_weights` takes them."""
    return [np.asarray(variable) for variable in self.variables]
