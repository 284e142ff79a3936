"""Optimizers of canned estimators, given by name, as objects or as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from lockstep import _types as types
from lockstep.errors import ArgumentError
from lockstep.estimator._canned._rmsprop import RMSProp
from lockstep.estimator.train import Optimizer

_BY_NAME = {
    "Adagrad": keras.optimizers.Adagrad,
    "Adam": keras.optimizers.Adam,
    "Ftrl": keras.optimizers.Ftrl,
    "RMSProp": RMSProp,
    "SGD": keras.optimizers.SGD,
}


def create_optimizer(optimizer: types.Optimizer | str, learning_rate: float | None = None) -> Any:
    """Returns an optimizer, created in the current model_fn call if given by name or function.

    Args:
        optimizer: The name of one, an optimizer of Keras, lockstep.estimator.train or optax, or a function that returns
            one.
        learning_rate: The learning rate of a named optimizer; `None` for Keras' default.

    Raises:
        ArgumentError: If no optimizer has the name.
    """
    if isinstance(optimizer, str):
        return _optimizer_class(optimizer)(**({} if learning_rate is None else {"learning_rate": learning_rate}))
    return optimizer() if callable(optimizer) and not _is_optimizer(optimizer) else optimizer


def _optimizer_class(name: str) -> Callable[..., types.Optimizer]:
    if name not in _BY_NAME:
        raise ArgumentError(
            f"The names of optimizers are {', '.join(_BY_NAME)}. Received: {name!r}. Pass others as objects, or as a "
            "function that makes one."
        )
    return _BY_NAME[name]


def _is_optimizer(value: object) -> bool:
    if isinstance(value, type):
        return False
    # optax' transformations are NamedTuples with an `update`, and have no common class here.
    return isinstance(value, (keras.optimizers.Optimizer, Optimizer)) or hasattr(value, "update")
