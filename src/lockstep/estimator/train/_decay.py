"""Learning rate schedules: exponential, inverse time, polynomial, piecewise constant, cosine."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._types import ArrayLike, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator.train._arguments import Hyperparameter
from lockstep.estimator.train._global_step import GlobalStep


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
    start, part = _rate_and_progress(learning_rate, global_step, decay_steps)
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
    # exp(-rate) as the base: one formula for both, staircase included.
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
    start, part = _rate_and_progress(learning_rate, global_step, decay_steps)
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
    start, part = _rate_and_progress(learning_rate, global_step, decay_steps)
    end = jnp.asarray(end_learning_rate, start.dtype)
    # At step 0, ceil gives 0, which would divide by 0; TensorFlow counts the first cycle from there.
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
    step = _step_of(x)
    if len(boundaries) + 1 != len(values):
        raise ArgumentError(
            f"There is one value more than boundaries. Received: {len(boundaries)} boundaries and {len(values)} values."
        )
    # TensorFlow refuses mixed kinds, too: an int32 step beside a float boundary hides an error of the units.
    for argument, numbers, other in (
        ("boundaries", [step, *boundaries], "the global step"),
        ("values", list(values), "each other"),
    ):
        if len({_is_float(number) for number in numbers}) > 1:
            raise ArgumentError(
                f"{argument} must be integers or floats, as {other}. Received: {numbers!r}. Write all with a point, or "
                "none."
            )
    # TensorFlow converts a list of Python numbers by its first element's kind.
    dtype = jnp.float32 if _is_float(values[0]) else jnp.int32
    # `>`, so that a boundary belongs to the value before it, as in tf.compat.v1.train.piecewise_constant.
    passed = sum((jnp.asarray(step > b, jnp.int32) for b in boundaries), jnp.zeros((), jnp.int32))
    return jnp.stack([jnp.asarray(v, dtype) for v in values])[passed]


def cosine_decay(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    decay_steps: Hyperparameter,
    alpha: float | Tensor = 0.0,
    name: str | None = None,
) -> jax.Array:
    """Returns a learning rate that falls along half a cosine wave, and then stays.

    Args:
        learning_rate: The initial learning rate.
        global_step: A number of steps, traced or not.
        decay_steps: Number of steps until the end.
        alpha: The final rate, as a fraction of `learning_rate`.
        name: Names the operation in TensorFlow's graphs.

    Returns:
        A float32 of no dimensions, as for all schedules.

    Raises:
        ArgumentError: If there is no global step, outside of a model_fn.

    Source: tf.compat.v1.train.cosine_decay.
    """
    start, part = _rate_and_progress(learning_rate, global_step, decay_steps)
    return (start * ((1 - alpha) * _wave(jnp.minimum(part, 1)) + alpha)).astype(start.dtype)


def cosine_decay_restarts(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    first_decay_steps: Hyperparameter,
    t_mul: float | Tensor = 2.0,
    m_mul: float | Tensor = 1.0,
    alpha: float | Tensor = 0.0,
    name: str | None = None,
) -> jax.Array:
    """Returns a learning rate that falls along half a cosine wave, restarting at each end (SGDR).

    Args:
        learning_rate: The initial learning rate.
        global_step: A number of steps, traced or not.
        first_decay_steps: Length of the first wave.
        t_mul: Factor of length from one wave to the next.
        m_mul: Factor of height from one wave to the next.
        alpha: The rate at the end of a wave, as a fraction of `learning_rate`.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.cosine_decay_restarts.
    """
    start, part = _rate_and_progress(learning_rate, global_step, first_decay_steps)
    # t_mul may be traced, so both cases are computed. A factor of 1 would divide by zero, also in the branch that is
    # not taken.
    longer = jnp.asarray(t_mul, start.dtype)
    safe = jnp.where(longer == 1, 2, longer)
    # Waves of growing length end at the partial sums of a geometric series, which the logarithm inverts.
    wave = jnp.floor(jnp.log(1 - part * (1 - safe)) / jnp.log(safe))
    progress = (part - (1 - safe**wave) / (1 - safe)) / safe**wave
    wave = jnp.where(longer == 1, jnp.floor(part), wave)
    progress = jnp.where(longer == 1, part - jnp.floor(part), progress)
    height = jnp.power(jnp.asarray(m_mul, start.dtype), wave)
    return (start * ((1 - alpha) * height * _wave(progress) + alpha)).astype(start.dtype)


def linear_cosine_decay(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    decay_steps: Hyperparameter,
    num_periods: float | Tensor = 0.5,
    alpha: float | Tensor = 0.0,
    beta: float | Tensor = 0.001,
    name: str | None = None,
) -> jax.Array:
    """Returns `learning_rate * ((alpha + line) * wave + beta)`, of a falling line and a cosine wave.

    Args:
        learning_rate: The initial learning rate.
        global_step: A number of steps, traced or not.
        decay_steps: Number of steps until the end.
        num_periods: Number of waves until the end.
        alpha: Summand of the line.
        beta: Summand of the product.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.linear_cosine_decay.
    """
    start, part = _rate_and_progress(learning_rate, global_step, decay_steps)
    part = jnp.minimum(part, 1)
    return (start * ((alpha + 1 - part) * _wave(2 * num_periods * part) + beta)).astype(start.dtype)


def noisy_linear_cosine_decay(
    learning_rate: Hyperparameter,
    global_step: Tensor | Variable,
    decay_steps: Hyperparameter,
    initial_variance: float | Tensor = 1.0,
    variance_decay: float | Tensor = 0.55,
    num_periods: float | Tensor = 0.5,
    alpha: float | Tensor = 0.0,
    beta: float | Tensor = 0.001,
    name: str | None = None,
) -> jax.Array:
    """Returns the learning rate of `linear_cosine_decay` with noise added to the line.

    The noise is normal, of variance `initial_variance / (1 + global_step) ** variance_decay`. It depends on the
    seed and the step alone, so that it is equal on all replicas and after a restart.

    Args:
        learning_rate: The initial learning rate.
        global_step: A number of steps, traced or not.
        decay_steps: Number of steps until the end.
        initial_variance: Variance of the noise at step 0.
        variance_decay: Exponent of the variance's decay.
        num_periods: Number of waves until the end.
        alpha: Summand of the line.
        beta: Summand of the product.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.noisy_linear_cosine_decay.
    """
    start, part = _rate_and_progress(learning_rate, global_step, decay_steps)
    part = jnp.minimum(part, 1)
    done = part * jnp.asarray(decay_steps).astype(start.dtype)
    spread = jnp.sqrt(initial_variance / jnp.power(1 + done, variance_decay))
    # Python's generator is seeded alike before each call of a model_fn, so every trace draws the same key.
    key = jax.random.fold_in(jax.random.key(random.getrandbits(31)), _step_of(global_step))
    line = 1 - part + spread * jax.random.normal(key, (), start.dtype)
    return (start * ((alpha + line) * _wave(2 * num_periods * part) + beta)).astype(start.dtype)


def _wave(part: jax.Array) -> jax.Array:
    """Returns half a cosine wave: 1 at 0, 0 at 1."""
    # TensorFlow's constant is a float32, whatever the dtype of the rate.
    return 0.5 * (1 + jnp.cos(jnp.float32(math.pi) * part))


def _rate_and_progress(
    learning_rate: Hyperparameter, global_step: Tensor | Variable, decay_steps: Hyperparameter
) -> tuple[jax.Array, jax.Array]:
    """Returns the initial learning rate, and `global_step / decay_steps`, in one dtype."""
    rate = learning_rate.value if isinstance(learning_rate, keras.Variable) else learning_rate
    # As TensorFlow: Python's numbers become float32, arrays keep their dtype, also float64.
    is_typed = isinstance(rate, jax.Array) and jnp.issubdtype(rate.dtype, jnp.floating)
    dtype = rate.dtype if is_typed else jnp.float32
    step = jnp.asarray(_step_of(global_step)).astype(dtype)
    return jnp.asarray(rate, dtype), step / jnp.asarray(decay_steps).astype(dtype)


def _step_of(global_step: Tensor | Variable) -> Any:
    """Returns the global step's value; outside of a model_fn it is only a name, which is refused."""
    if global_step is None or isinstance(global_step, (GlobalStep, str)):
        raise ArgumentError(
            "A learning rate that depends on the global step is computed in the model_fn, or for a given number of "
            f"steps. Received: {global_step!r}. Call get_global_step() and this function inside of the model_fn."
        )
    return global_step.value if isinstance(global_step, keras.Variable) else global_step


def _is_float(value: ArrayLike) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)
