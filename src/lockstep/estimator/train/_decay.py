"""Learning rate schedules: exponential, inverse time, polynomial, piecewise constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._types import ArrayLike, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator.train._global_step import GlobalStep
from lockstep.estimator.train._values import Hyperparameter


def exponential_decay(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    decay_steps: Hyperparameter,
    decay_rate: float | Tensor,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `learning_rate * decay_rate ** (global_step / decay_steps)`.

    Args:
        learning_rate: The initial learning rate.
        global_step: A number of steps, traced or not.
        decay_steps: Number of steps in which the rate is multiplied by `decay_rate` once.
        decay_rate: The factor.
        staircase: Whether to decay at multiples of `decay_steps` only.
        name: Names the operation in TensorFlow's graphs.

    Returns:
        A float32 of no dimensions, as for all schedules; of the dtype of `learning_rate` if that is an array of JAX.

    Raises:
        ArgumentError: If there is no global step, outside of a model_fn.

    Source: tf.compat.v1.train.exponential_decay.
    """
    start, part = rate_and_progress(learning_rate, global_step, decay_steps)
    return start * jnp.power(jnp.asarray(decay_rate, start.dtype), jnp.floor(part) if staircase else part)


def natural_exp_decay(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    decay_steps: Hyperparameter,
    decay_rate: float | Tensor,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `learning_rate * exp(-decay_rate * global_step / decay_steps)`; see `exponential_decay`.

    Source: tf.compat.v1.train.natural_exp_decay.
    """
    base = jnp.exp(-jnp.asarray(decay_rate, jnp.float32))
    return exponential_decay(learning_rate, global_step, decay_steps, base, staircase)


def inverse_time_decay(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    decay_steps: Hyperparameter,
    decay_rate: float | Tensor,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `learning_rate / (1 + decay_rate * global_step / decay_steps)`; see `exponential_decay`.

    Source: tf.compat.v1.train.inverse_time_decay.
    """
    start, part = rate_and_progress(learning_rate, global_step, decay_steps)
    return start / (1 + jnp.asarray(decay_rate, start.dtype) * (jnp.floor(part) if staircase else part))


def polynomial_decay(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    decay_steps: Hyperparameter,
    end_learning_rate: float | Tensor = 0.0001,
    power: float | Tensor = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `(learning_rate - end_learning_rate) * (1 - global_step / decay_steps) ** power + end_learning_rate`.

    Args:
        learning_rate: The initial learning rate.
        global_step: A number of steps, traced or not.
        decay_steps: Number of steps until `end_learning_rate`.
        end_learning_rate: The final learning rate.
        power: Exponent of the polynomial; 1 for a line.
        cycle: Whether the end moves to the next multiple of `decay_steps` once it is reached.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.polynomial_decay.
    """
    start, part = rate_and_progress(learning_rate, global_step, decay_steps)
    end = jnp.asarray(end_learning_rate, start.dtype)
    # At step 0, ceil gives 0; TensorFlow counts the first cycle from there.
    cycles = jnp.where(part == 0, 1, jnp.ceil(part))
    part = part / cycles if cycle else jnp.minimum(part, 1)
    return (start - end) * jnp.power(1 - part, jnp.asarray(power, start.dtype)) + end


def piecewise_constant(
    x: Tensor, boundaries: Sequence[float], values: Sequence[float], name: str | None = None
) -> jax.Array:
    """Returns `values[0]` up to and with `boundaries[0]`, then `values[1]` up to and with `boundaries[1]`, and so on.

    Args:
        x: A number of steps, traced or not.
        boundaries: Ascending steps; integers if `x` is an integer, else floats.
        values: Learning rates, one more than `boundaries`, all floats or all integers.
        name: Names the operation in TensorFlow's graphs.

    Returns:
        A float32 of no dimensions, or an int32 if `values` are integers.

    Raises:
        ArgumentError: If their numbers or kinds do not match.

    Source: tf.compat.v1.train.piecewise_constant.
    """
    step = step_of(x)
    if len(boundaries) + 1 != len(values):
        raise ArgumentError(
            f"There is one value more than boundaries. Received: {len(boundaries)} boundaries and {len(values)} values."
        )
    _check_same_kind("boundaries", [step, *boundaries], "the global step")
    _check_same_kind("values", list(values), "each other")
    # TensorFlow converts a list of Python numbers by its first element's kind.
    dtype = jnp.float32 if _kind(values[0]) == "f" else jnp.int32
    passed = sum((jnp.asarray(step > b, jnp.int32) for b in boundaries), jnp.zeros((), jnp.int32))
    return jnp.stack([jnp.asarray(v, dtype) for v in values])[passed]


def rate_and_progress(
    learning_rate: Hyperparameter, global_step: Tensor | Variable, decay_steps: Hyperparameter
) -> tuple[jax.Array, jax.Array]:
    """Returns the initial learning rate, and `global_step / decay_steps`, in one dtype."""
    rate = learning_rate.value if isinstance(learning_rate, keras.Variable) else learning_rate
    # As TensorFlow: Python's numbers become float32, arrays keep their dtype, also float64.
    is_typed = isinstance(rate, jax.Array) and jnp.issubdtype(rate.dtype, jnp.floating)
    dtype = rate.dtype if is_typed else jnp.float32
    step = jnp.asarray(step_of(global_step)).astype(dtype)
    return jnp.asarray(rate, dtype), step / jnp.asarray(decay_steps).astype(dtype)


def step_of(global_step: Tensor | Variable) -> Any:
    """Returns the global step's value.

    Raises:
        ArgumentError: If it is only a name, outside of a model_fn.
    """
    if global_step is None or isinstance(global_step, (GlobalStep, str)):
        raise ArgumentError(
            "A learning rate that depends on the global step is computed in the model_fn, or for a given number of "
            f"steps. Received: {global_step!r}. Call get_global_step() and this function inside of the model_fn."
        )
    return global_step.value if isinstance(global_step, keras.Variable) else global_step


def _kind(value: ArrayLike) -> str:
    return "f" if jnp.issubdtype(jnp.result_type(value), jnp.floating) else "i"


def _check_same_kind(argument: str, values: list[Any], other: str) -> None:
    kinds = {_kind(v) for v in values}
    if len(kinds) > 1:
        raise ArgumentError(
            f"{argument} must be integers or floats, as {other}. Received: {values!r}. Write all with a point, or none."
        )
