"""Optimizers as canned estimators take them."""

from __future__ import annotations

from typing import Any

import keras

from lockstep.errors import ArgumentError
from lockstep.estimator._canned._rmsprop import RMSProp
from lockstep.train import Optimizer

_BY_NAME = {
    "Adagrad": keras.optimizers.Adagrad,
    "Adam": keras.optimizers.Adam,
    "Ftrl": keras.optimizers.Ftrl,
    "RMSProp": RMSProp,
    "SGD": keras.optimizers.SGD,
}


def optimizer_of(given: Any, learning_rate: float | None = None) -> Any:
    """Returns an optimizer, made in the running call of a model_fn where it is not there already.

    Args:
        given: The name of one, an optimizer of Keras, lockstep.train or optax, or a function that returns such.
        learning_rate: Of one given by its name; `None` for Keras' default.

    Raises:
        ArgumentError: If there is no optimizer of that name.
    """
    if isinstance(given, str):
        return _named(given)(**({} if learning_rate is None else {"learning_rate": learning_rate}))
    return given() if callable(given) and not _is_optimizer(given) else given


def _named(name: str) -> Any:
    if name not in _BY_NAME:
        raise ArgumentError(
            f"The names of optimizers are {', '.join(_BY_NAME)}. Received: {name!r}. Pass others as objects, or as a "
            "function that makes one."
        )
    return _BY_NAME[name]


def _is_optimizer(given: Any) -> bool:
    if isinstance(given, type):
        return False
    return isinstance(given, (keras.optimizers.Optimizer, Optimizer)) or hasattr(given, "update")
