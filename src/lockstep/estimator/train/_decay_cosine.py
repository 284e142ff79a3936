"""Learning rate schedules along a cosine."""

from __future__ import annotations

import math
import random

import jax
import jax.numpy as jnp

from lockstep._types import DType, Tensor, Variable
from lockstep.estimator.train._decay import rate_and_progress, step_of
from lockstep.estimator.train._values import Hyperparameter


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
    start, part = rate_and_progress(learning_rate, global_step, decay_steps)
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
    start, part = rate_and_progress(learning_rate, global_step, first_decay_steps)
    # t_mul may be traced, so both cases are computed.
    longer = jnp.asarray(t_mul, start.dtype)
    even = jnp.floor(part), part - jnp.floor(part)
    wave, part = (jnp.where(longer == 1, e, g) for e, g in zip(even, _geometric(part, longer), strict=True))
    height = jnp.power(jnp.asarray(m_mul, start.dtype), wave)
    return (start * ((1 - alpha) * height * _wave(part) + alpha)).astype(start.dtype)


def _geometric(part: jax.Array, longer: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the current wave's index and progress, if each is `longer` times the one before."""
    # Partial sums of a geometric series. A factor of 1 would divide by zero, also in the branch that is not taken.
    safe = jnp.where(longer == 1, 2, longer)
    wave = jnp.floor(jnp.log(1 - part * (1 - safe)) / jnp.log(safe))
    before = (1 - safe**wave) / (1 - safe)
    return wave, (part - before) / safe**wave


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
    start, part = rate_and_progress(learning_rate, global_step, decay_steps)
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
    start, part = rate_and_progress(learning_rate, global_step, decay_steps)
    part = jnp.minimum(part, 1)
    done = part * jnp.asarray(decay_steps).astype(start.dtype)
    spread = jnp.sqrt(initial_variance / jnp.power(1 + done, variance_decay))
    line = 1 - part + spread * _noise(global_step, start.dtype)
    return (start * ((alpha + line) * _wave(2 * num_periods * part) + beta)).astype(start.dtype)


def _wave(part: jax.Array) -> jax.Array:
    """Returns half a cosine wave: 1 at 0, 0 at 1."""
    return 0.5 * (1 + jnp.cos(jnp.float32(math.pi) * part))


def _noise(global_step: Tensor | Variable, dtype: DType) -> jax.Array:
    # Python's generator is seeded alike before each call of a model_fn, so every trace draws the same key.
    key = jax.random.key(random.getrandbits(31))
    return jax.random.normal(jax.random.fold_in(key, step_of(global_step)), (), dtype)
