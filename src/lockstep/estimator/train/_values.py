"""Hyperparameters of optimizers and schedules: plain numbers, functions, or values computed in the model_fn."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Array, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator.train._global_step import get_global_step

Hyperparameter: TypeAlias = Any
"""A number, an array of no dimensions, a variable, a function of no arguments that returns one, or a Keras schedule."""


def to_number(value: Hyperparameter, argument: str) -> Array:
    """Converts a hyperparameter to an array of no dimensions.

    Args:
        value: A number, an array, a variable, a function of no arguments that returns one, or a schedule of Keras, to
            which the global step is given.
        argument: Its name, for the error.

    Returns:
        A float32 for a number of Python, as in TensorFlow; a value that has a dtype keeps it.

    Raises:
        ArgumentError: If it is none of these.
    """
    # Before `callable`: a schedule is callable too, but takes the step.
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        value = value(get_global_step())
    value = value() if callable(value) and not isinstance(value, keras.Variable) else value
    if isinstance(value, keras.Variable):
        value = value.value
    if isinstance(value, (bool, str)) or value is None:
        raise _not_a_number(value, argument)
    array = np.float32(value) if isinstance(value, (int, float)) and not isinstance(value, np.generic) else value
    if not hasattr(array, "dtype") or np.ndim(array):
        raise _not_a_number(value, argument)
    return array


def plain_number(value: Hyperparameter, argument: str) -> float:
    """Converts a hyperparameter that must be known before training starts to a number.

    Raises:
        ArgumentError: If it is computed from the global step or the data.
    """
    value = value() if callable(value) else value
    if isinstance(value, (bool, str, Tracer)) or value is None or np.ndim(value):
        raise ArgumentError(
            f"{argument} sets the first value of a variable, so it must be a plain number. Received: {value!r}. Pass a "
            "number that does not depend on features, labels or the global step."
        )
    return float(value)


def cast_like(value: Array, variable: Variable) -> Array:
    """Casts a number to the dtype of a variable."""
    return jnp.asarray(value).astype(variable.dtype)


def check_at_least(value: Hyperparameter, least: float, argument: str, *, strictly: bool = False) -> None:
    """Checks the range of a hyperparameter, if it is known yet.

    Raises:
        ArgumentError: If it is too small.
    """
    if isinstance(value, Tracer) or callable(value):
        return
    if value < least or (strictly and value == least):
        raise ArgumentError(
            f"{argument} must be {'greater than' if strictly else 'at least'} {least}. Received: {value}."
        )


def _not_a_number(value: object, argument: str) -> ArgumentError:
    return ArgumentError(
        f"{argument} must be a number, an array of no dimensions, or a function of no arguments that returns one. "
        f"Received: {value!r}."
    )
