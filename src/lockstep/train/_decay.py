"""Learning rates that fall as the global step rises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep.errors import ArgumentError
from lockstep.train._global_step import GlobalStep


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `learning_rate * decay_rate ** (global_step / decay_steps)`.

    Args:
        learning_rate: At the start.
        global_step: A number of steps, traced or not.
        decay_steps: In how many steps it falls by `decay_rate`.
        decay_rate: By which it is multiplied.
        staircase: Whether it falls only every `decay_steps`.
        name: Names the operation in TensorFlow's graphs.

    Returns:
        A float32 of no dimensions, as all functions here; of the type of `learning_rate` if that is an array of JAX.

    Raises:
        ArgumentError: If there is no step.

    Source: tf.compat.v1.train.exponential_decay.
    """
    start, part = begin(learning_rate, global_step, decay_steps)
    return start * jnp.power(jnp.asarray(decay_rate, start.dtype), jnp.floor(part) if staircase else part)


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `learning_rate * exp(-decay_rate * global_step / decay_steps)`; see `exponential_decay`.

    Source: tf.compat.v1.train.natural_exp_decay.
    """
    base = jnp.exp(-jnp.asarray(decay_rate, jnp.float32))
    return exponential_decay(learning_rate, global_step, decay_steps, base, staircase)


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `learning_rate / (1 + decay_rate * global_step / decay_steps)`; see `exponential_decay`.

    Source: tf.compat.v1.train.inverse_time_decay.
    """
    start, part = begin(learning_rate, global_step, decay_steps)
    return start / (1 + jnp.asarray(decay_rate, start.dtype) * (jnp.floor(part) if staircase else part))


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns `(learning_rate - end_learning_rate) * (1 - global_step / decay_steps) ** power + end_learning_rate`.

    Args:
        learning_rate: At the start.
        global_step: A number of steps, traced or not.
        decay_steps: After how many steps the end is reached.
        end_learning_rate: At the end.
        power: 1 for a straight line.
        cycle: Whether the end is put off, to the next multiple of `decay_steps`, rather than kept.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.polynomial_decay.
    """
    start, part = begin(learning_rate, global_step, decay_steps)
    end = jnp.asarray(end_learning_rate, start.dtype)
    rounds = jnp.where(part == 0, 1, jnp.ceil(part))
    part = part / rounds if cycle else jnp.minimum(part, 1)
    return (start - end) * jnp.power(1 - part, jnp.asarray(power, start.dtype)) + end


def piecewise_constant(x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None) -> jax.Array:
    """Returns `values[0]` up to and with `boundaries[0]`, then `values[1]` up to and with `boundaries[1]`, and so on.

    Args:
        x: A number of steps, traced or not.
        boundaries: Rising; of the kind of `x`, integers for an integer.
        values: One more than `boundaries`, all floats or all integers.
        name: Names the operation in TensorFlow's graphs.

    Returns:
        A float32 of no dimensions, or an int32 if `values` are integers.

    Raises:
        ArgumentError: If numbers or kinds do not match.

    Source: tf.compat.v1.train.piecewise_constant.
    """
    step = step_of(x)
    if len(boundaries) + 1 != len(values):
        raise ArgumentError(
            f"There is one value more than boundaries. Received: {len(boundaries)} boundaries and {len(values)} values."
        )
    _same_kind("boundaries", [step, *boundaries], "the global step")
    _same_kind("values", list(values), "each other")
    dtype = jnp.float32 if _kind(values[0]) == "f" else jnp.int32
    passed = sum((jnp.asarray(step > b, jnp.int32) for b in boundaries), jnp.zeros((), jnp.int32))
    return jnp.stack([jnp.asarray(v, dtype) for v in values])[passed]


def begin(learning_rate: Any, global_step: Any, decay_steps: Any) -> tuple[jax.Array, jax.Array]:
    """Returns the first learning rate, and which part of `decay_steps` has passed; it may be more than 1."""
    rate = learning_rate.value if isinstance(learning_rate, keras.Variable) else learning_rate
    is_typed = isinstance(rate, jax.Array) and jnp.issubdtype(rate.dtype, jnp.floating)
    dtype = rate.dtype if is_typed else jnp.float32
    step = jnp.asarray(step_of(global_step)).astype(dtype)
    return jnp.asarray(rate, dtype), step / jnp.asarray(decay_steps).astype(dtype)


def step_of(global_step: Any) -> Any:
    """Returns a number of steps.

    Raises:
        ArgumentError: If it is none.
    """
    if global_step is None or isinstance(global_step, (GlobalStep, str)):
        raise ArgumentError(
            "A learning rate that depends on the global step is computed in the model_fn, or for a given number of "
            f"steps. Received: {global_step!r}. Call get_global_step() and this function inside of the model_fn."
        )
    return global_step.value if isinstance(global_step, keras.Variable) else global_step


def _kind(value: Any) -> str:
    return "f" if jnp.issubdtype(jnp.result_type(value), jnp.floating) else "i"


def _same_kind(what: str, values: list[Any], other: str) -> None:
    kinds = {_kind(v) for v in values}
    if len(kinds) > 1:
        raise ArgumentError(
            f"{what} must be integers or floats, as {other}. Received: {values!r}. Write all with a point, or none."
        )
