"""Learning rates that fall along a cosine."""

from __future__ import annotations

import math
import random
from typing import Any

import jax
import jax.numpy as jnp

from lockstep.train._decay import begin, step_of


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: Any = 0.0, name: str | None = None
) -> jax.Array:
    """Returns a learning rate that falls along half of a cosine wave, and then stays.

    Args:
        learning_rate: At the start.
        global_step: A number of steps, traced or not.
        decay_steps: After how many steps the end is reached.
        alpha: At the end, as a part of `learning_rate`.
        name: Names the operation in TensorFlow's graphs.

    Returns:
        A float32 of no dimensions, as all functions here.

    Raises:
        ArgumentError: If there is no step.

    Source: tf.compat.v1.train.cosine_decay.
    """
    start, part = begin(learning_rate, global_step, decay_steps)
    return (start * ((1 - alpha) * _wave(jnp.minimum(part, 1)) + alpha)).astype(start.dtype)


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> jax.Array:
    """Returns a learning rate that falls along half of a cosine wave, again and again.

    Args:
        learning_rate: At the start.
        global_step: A number of steps, traced or not.
        first_decay_steps: How many steps the first wave takes.
        t_mul: How much longer each wave is than the one before.
        m_mul: How much higher each wave is than the one before.
        alpha: At the end of a wave, as a part of `learning_rate`.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.cosine_decay_restarts.
    """
    start, part = begin(learning_rate, global_step, first_decay_steps)
    longer = jnp.asarray(t_mul, start.dtype)
    even = jnp.floor(part), part - jnp.floor(part)
    wave, part = (jnp.where(longer == 1, e, g) for e, g in zip(even, _geometric(part, longer), strict=True))
    height = jnp.power(jnp.asarray(m_mul, start.dtype), wave)
    return (start * ((1 - alpha) * height * _wave(part) + alpha)).astype(start.dtype)


def _geometric(part: jax.Array, longer: jax.Array) -> tuple[jax.Array, jax.Array]:
    """In which wave we are, and which part of it has passed, if each is `longer` times the one before."""
    safe = jnp.where(longer == 1, 2, longer)
    wave = jnp.floor(jnp.log(1 - part * (1 - safe)) / jnp.log(safe))
    before = (1 - safe**wave) / (1 - safe)
    return wave, (part - before) / safe**wave


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> jax.Array:
    """Returns a learning rate that falls along a line times a cosine wave: `(alpha + line) * wave + beta` of it.

    Args:
        learning_rate: At the start.
        global_step: A number of steps, traced or not.
        decay_steps: After how many steps the end is reached.
        num_periods: How many waves until then.
        alpha: Added to the line.
        beta: Added at the end.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.linear_cosine_decay.
    """
    start, part = begin(learning_rate, global_step, decay_steps)
    part = jnp.minimum(part, 1)
    return (start * ((alpha + 1 - part) * _wave(2 * num_periods * part) + beta)).astype(start.dtype)


def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> jax.Array:
    """Returns a learning rate as `linear_cosine_decay`, with noise added to the line.

    The noise is normal, of variance `initial_variance / (1 + global_step) ** variance_decay`. It depends on the seed
    and the step alone, so that all replicas, and a run that goes on, have the same.

    Args:
        learning_rate: At the start.
        global_step: A number of steps, traced or not.
        decay_steps: After how many steps the end is reached.
        initial_variance: Of the noise, at the start.
        variance_decay: How the variance falls.
        num_periods: How many waves until the end.
        alpha: Added to the line.
        beta: Added at the end.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.compat.v1.train.noisy_linear_cosine_decay.
    """
    start, part = begin(learning_rate, global_step, decay_steps)
    part = jnp.minimum(part, 1)
    done = part * jnp.asarray(decay_steps).astype(start.dtype)
    spread = jnp.sqrt(initial_variance / jnp.power(1 + done, variance_decay))
    line = 1 - part + spread * _noise(global_step, start.dtype)
    return (start * ((alpha + line) * _wave(2 * num_periods * part) + beta)).astype(start.dtype)


def _wave(part: jax.Array) -> jax.Array:
    """Half of a cosine wave: 1 at the start, 0 at the end."""
    return 0.5 * (1 + jnp.cos(jnp.float32(math.pi) * part))


def _noise(global_step: Any, dtype: Any) -> jax.Array:
    # At the start of each call of a model_fn, Python's generator is in the same state.
    key = jax.random.key(random.getrandbits(31))
    return jax.random.normal(jax.random.fold_in(key, step_of(global_step)), (), dtype)
