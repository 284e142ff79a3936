"""Numbers that an optimizer is given: plain, computed by a function, or computed in the model_fn."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep.errors import ArgumentError
from lockstep.train._global_step import get_global_step


def number(value: Any, what: str) -> Any:
    """Returns an argument of an optimizer as an array of no dimensions.

    Args:
        value: A number, an array, a variable, a function of no arguments that returns one, or a schedule of Keras, to
            which the global step is given.
        what: Its name, for the error.

    Returns:
        A number of Python becomes float32, as TensorFlow makes it; what has a type keeps it.

    Raises:
        ArgumentError: If it is nothing of these.
    """
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        value = value(get_global_step())
    value = value() if callable(value) and not isinstance(value, keras.Variable) else value
    if isinstance(value, keras.Variable):
        value = value.value
    if isinstance(value, (bool, str)) or value is None:
        raise _not_a_number(value, what)
    array = np.float32(value) if isinstance(value, (int, float)) and not isinstance(value, np.generic) else value
    if not hasattr(array, "dtype") or np.ndim(array):
        raise _not_a_number(value, what)
    return array


def plain_number(value: Any, what: str) -> float:
    """Returns an argument that must be known before training starts, as a number.

    Raises:
        ArgumentError: If it is computed from the global step or the data.
    """
    value = value() if callable(value) else value
    if isinstance(value, (bool, str, Tracer)) or value is None or np.ndim(value):
        raise ArgumentError(
            f"{what} sets the first value of a variable, so it must be a plain number. Received: {value!r}. Pass a "
            "number that does not depend on features, labels or the global step."
        )
    return float(value)


def like(value: Any, variable: Any) -> Any:
    """Returns a number in the type of a variable."""
    return jnp.asarray(value).astype(variable.dtype)


def at_least(value: Any, least: float, what: str, *, strictly: bool = False) -> None:
    """Checks the range of an argument, if it is known yet.

    Raises:
        ArgumentError: If it is too small.
    """
    if isinstance(value, Tracer) or callable(value):
        return
    if value < least or (strictly and value == least):
        raise ArgumentError(f"{what} must be {'greater than' if strictly else 'at least'} {least}. Received: {value}.")


def _not_a_number(value: Any, what: str) -> ArgumentError:
    return ArgumentError(
        f"{what} must be a number, an array of no dimensions, or a function of no arguments that returns one. "
        f"Received: {value!r}."
    )
