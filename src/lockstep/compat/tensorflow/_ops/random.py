"""Random numbers: of a generator of this process, and of functions of a seed."""

from __future__ import annotations

import random as _python_random
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

from lockstep._engine.runtime import randomness
from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32, int64
from lockstep.compat.tensorflow._ops import dispatch, named, random_in_model
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import DTypeLike, Seed, ShapeLike, SizeLike
from lockstep.data.internal import NonDeterministicError
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["categorical", "gamma", "normal", "poisson", "set_seed", "shuffle"]
__all__ += ["stateless_categorical", "stateless_normal", "stateless_shuffle", "stateless_truncated_normal"]
__all__ += ["stateless_uniform", "truncated_normal", "uniform"]

# Map functions of datasets draw on several threads.
_lock = threading.Lock()
_state: dict[Any, Any] = {}


def set_seed(seed: int | None) -> None:
    """Makes what follows repeatable: random numbers, Keras' initial weights, and the order of shuffled data.

    `None` makes it differ from run to run again.

    It seeds Python's and numpy's global generators too, from which Keras and lockstep take their seeds. The numbers are
    not TensorFlow's.

    Source: tf.random.set_seed.
    """
    number = dispatch.to_static(seed)
    # Keras and lockstep.data draw their first seeds from these two generators.
    _python_random.seed(number)
    # numpy's old generator takes 32 bits.
    np.random.seed(None if number is None else number % 2**32)
    # Keras makes its global generator when it is first used, with a seed out of Python's generator, and has no public
    # way to drop it.
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, None)
    start_anew(number)


def start_anew(seed: int | None) -> None:
    """Has the numbers of `tf.random` begin anew from a seed, and changes nothing else."""
    random_in_model.start_anew()
    with _lock:
        _state.clear()
        _state["generator"] = np.random.default_rng(None if seed is None else seed % 2**64)


def order_of_data() -> np.random.RandomState:
    """Returns the generator that shuffles the arrays of `fit`, which numpy's global one has no part in."""
    known = _state.get("order")
    if known is None:
        known = _state["order"] = np.random.RandomState(int(process_generator().integers(2**32)))
    return known


def _set_order(generator: np.random.RandomState | None) -> None:
    _state["order"] = generator


# So that a run goes on with the same order, and all workers have the chief's.
randomness.include("order of data", lambda: _state.get("order"), _set_order)


# Map functions of data sets that raise it are called for each element instead, in order.
class _DrawnWhileTracedError(UnsupportedError, NonDeterministicError):
    pass


def process_generator(seed: Seed = None) -> np.random.Generator:
    """Returns the generator of this process, or that of a seed; raises in code that is compiled."""
    if dispatch.is_traced():
        raise _DrawnWhileTracedError(
            "Random numbers inside of code that JAX compiles must come from a seed that changes: a number drawn here "
            "would be the same in every step. In a layer make keras.random.SeedGenerator in __init__ and call "
            "keras.random functions with it; elsewhere use tf.random.stateless_* functions with a seed that is an "
            "argument."
        )
    with _lock:
        if "generator" not in _state:
            # From a copy of Python's generator: random.seed() alone makes a program repeatable, and draws nothing.
            copy = _python_random.Random()
            copy.setstate(_python_random.getstate())
            _state["generator"] = np.random.default_rng(copy.getrandbits(64))
        if seed is None:
            return _state["generator"]
        # As in TensorFlow, a seed has its own sequence, which goes on from call to call.
        return _state.setdefault(
            ("seed", dispatch.to_static(seed)), np.random.default_rng([dispatch.to_static(seed) % 2**64])
        )


def to_floats(value: Tensor, dtype: DTypeLike) -> Any:
    """Returns drawn numbers as a tensor of a type."""
    return as_host(np.asarray(value).astype(as_dtype(dtype).dtype))


@random_in_model.redirect
def uniform(
    shape: ShapeLike,
    minval: Tensor = 0,
    maxval: Tensor = None,
    dtype: DTypeLike = float32,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Draws uniformly from `minval` up to but without `maxval` (1; integers need one). Source: tf.random.uniform."""
    kind = as_dtype(dtype)
    low, high = check_limits(minval, maxval, kind)
    if kind.is_integer:
        return as_host(np.asarray(process_generator(seed).integers(low, high, dispatch.to_shape(shape), kind.dtype)))
    drawn = process_generator(seed).random(dispatch.to_shape(shape), np.float32)
    return to_floats(
        # Rounding may reach high, which is excluded.
        np.minimum(low + drawn * (high - low), np.nextafter(np.float32(high), np.float32(low)))
        if np.all(high > low)
        else low + drawn * 0,
        kind,
    )


def check_limits(minval: Tensor, maxval: Tensor, kind: DTypeLike) -> tuple[Any, Any]:
    """Returns from where and up to where numbers are drawn."""
    if maxval is None and kind.is_integer:
        raise ArgumentError("Integers are drawn below a maxval, which must be given. Received none.")
    low, high = np.asarray(minval, kind.dtype), np.asarray(1 if maxval is None else maxval, kind.dtype)
    # numpy's own error names its arguments, not TensorFlow's.
    if kind.is_integer and np.any(low >= high):
        raise ArgumentError(f"maxval must be greater than minval. Received: {minval} and {maxval}.")
    return low, high


@random_in_model.redirect
def normal(
    shape: ShapeLike,
    mean: Tensor = 0.0,
    stddev: Tensor = 1.0,
    dtype: DTypeLike = float32,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Draws from normal distributions. Source: tf.random.normal."""
    drawn = process_generator(seed).standard_normal(dispatch.to_shape(shape), np.float32)
    return to_floats(drawn * np.asarray(stddev) + np.asarray(mean), dtype)


@random_in_model.redirect
def truncated_normal(
    shape: ShapeLike,
    mean: Tensor = 0.0,
    stddev: Tensor = 1.0,
    dtype: DTypeLike = float32,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Draws from normal distributions, only what lies within two deviations. Source: tf.random.truncated_normal."""
    from scipy import special

    # By the inverse of the distribution: one number drawn for each value, no rejection.
    low, high = special.ndtr(-2.0), special.ndtr(2.0)
    drawn = special.ndtri(low + (high - low) * process_generator(seed).random(dispatch.to_shape(shape)))
    return to_floats(drawn * np.asarray(stddev) + np.asarray(mean), dtype)


@random_in_model.redirect
def gamma(
    shape: ShapeLike,
    alpha: Tensor,
    beta: Tensor = None,
    dtype: DTypeLike = float32,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Draws `shape` samples from each gamma distribution. Source: tf.random.gamma."""
    a = np.asarray(alpha, np.float64)
    drawn = process_generator(seed).gamma(
        a, size=(*dispatch.to_shape(shape), *np.broadcast_shapes(a.shape, np.shape(1.0 if beta is None else beta)))
    )
    return to_floats(drawn / np.asarray(1.0 if beta is None else beta), dtype)


@random_in_model.redirect
def poisson(
    shape: ShapeLike, lam: Tensor, dtype: DTypeLike = float32, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Draws `shape` samples from each Poisson distribution. Source: tf.random.poisson."""
    return to_floats(
        process_generator(seed).poisson(np.asarray(lam), (*dispatch.to_shape(shape), *np.shape(lam))), dtype
    )


@random_in_model.redirect
def categorical(
    logits: Tensor, num_samples: SizeLike, dtype: DTypeLike = int64, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Draws `num_samples` classes for each row of logits. Source: tf.random.categorical."""
    rows = np.asarray(
        dispatch.to_array(dispatch.HOST, logits) if dispatch.library_of(logits) is dispatch.HOST else logits
    )
    # The argmax of logits with Gumbel noise is distributed as their softmax.
    noise = process_generator(seed).gumbel(size=(rows.shape[0], dispatch.to_static(num_samples), rows.shape[1]))
    return as_host(np.argmax(rows[:, None] + noise, axis=-1).astype(as_dtype(dtype).dtype))


@random_in_model.redirect
def shuffle(value: Tensor, seed: Seed = None, name: str | None = None) -> Tensor:
    """Reorders the slices along the first dimension. Source: tf.random.shuffle."""
    xp, x = dispatch.pick(value)
    order = process_generator(seed).permutation(x.shape[0])
    return as_host(x[order]) if xp is dispatch.HOST else x[order]


def _draw_stateless(seed: Seed, draw: Any) -> Any:
    """Draws with a key of JAX made of TensorFlow's two numbers."""
    xp, words = dispatch.pick(seed)
    if tuple(words.shape) != (2,):
        raise ArgumentError(f"seed must be two integers. Received one of shape {tuple(words.shape)}.")
    # TensorFlow's seeds may be negative, and of 64 bits; keys are made of 32-bit words.
    known = words if xp is dispatch.DEVICE else words.astype(np.int64) % 2**32
    first, second = (jnp.asarray(w).astype(jnp.uint32) for w in known)
    numbers = draw(jax.random.fold_in(jax.random.key(first), second))
    is_known = xp is dispatch.HOST and not isinstance(numbers, Tracer)
    return as_host(np.asarray(numbers)) if is_known else numbers


def stateless_uniform(
    shape: ShapeLike,
    seed: Seed,
    minval: Tensor = 0,
    maxval: Tensor = None,
    dtype: DTypeLike = float32,
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Draws uniformly, the same for the same seed (two integers); `alg` must stay "auto_select": JAX has one.

    Source: tf.random.stateless_uniform.
    """
    check_algorithm(alg)
    # JAX computes these on the host, too: the same seed gives the same numbers in compiled code.
    kind, wanted = as_dtype(dtype), dispatch.usable_dtype(dispatch.DEVICE, dtype)
    top = 1 if maxval is None else maxval
    if kind.is_integer:
        if maxval is None:
            raise ArgumentError("Integers are drawn below a maxval, which must be given. Received none.")
        return _draw_stateless(seed, lambda k: jax.random.randint(k, dispatch.to_shape(shape), minval, top, wanted))
    return _draw_stateless(seed, lambda k: jax.random.uniform(k, dispatch.to_shape(shape), wanted, minval, top))


def stateless_normal(
    shape: ShapeLike,
    seed: Seed,
    mean: Tensor = 0.0,
    stddev: Tensor = 1.0,
    dtype: DTypeLike = float32,
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Draws from normal distributions, the same for the same seed. Source: tf.random.stateless_normal."""
    check_algorithm(alg)
    wanted = dispatch.usable_dtype(dispatch.DEVICE, dtype)
    return _draw_stateless(
        seed, lambda k: (jax.random.normal(k, dispatch.to_shape(shape), wanted) * stddev + mean).astype(wanted)
    )


def stateless_truncated_normal(
    shape: ShapeLike,
    seed: Seed,
    mean: Tensor = 0.0,
    stddev: Tensor = 1.0,
    dtype: DTypeLike = float32,
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Draws from normal distributions cut off at two deviations. Source: tf.random.stateless_truncated_normal."""
    check_algorithm(alg)
    wanted = dispatch.usable_dtype(dispatch.DEVICE, dtype)
    return _draw_stateless(
        seed,
        lambda k: (jax.random.truncated_normal(k, -2.0, 2.0, dispatch.to_shape(shape), wanted) * stddev + mean).astype(
            wanted
        ),
    )


def stateless_categorical(
    logits: Tensor, num_samples: SizeLike, seed: Seed, dtype: DTypeLike = int64, name: str | None = None
) -> Tensor:
    """Draws classes for each row of logits, the same for the same seed. Source: tf.random.stateless_categorical."""
    wanted = dispatch.usable_dtype(dispatch.DEVICE, dtype)
    rows = jnp.asarray(dispatch.pick(logits)[1])
    count = dispatch.to_static(num_samples)
    return _draw_stateless(
        seed, lambda k: jax.random.categorical(k, rows[:, None], shape=(rows.shape[0], count)).astype(wanted)
    )


def stateless_shuffle(value: Tensor, seed: Seed, alg: str = "auto_select", name: str | None = None) -> Tensor:
    """Reorders the slices of the first dimension, the same for the same seed.

    Source: tf.random.experimental.stateless_shuffle.
    """
    check_algorithm(alg)
    xp, x = dispatch.pick(value)
    if xp is dispatch.HOST:
        return as_host(x[np.asarray(_draw_stateless(seed, lambda k: jax.random.permutation(k, x.shape[0])))])
    return _draw_stateless(seed, lambda k: jax.random.permutation(k, x))


def check_algorithm(alg: str) -> None:
    """Raises `ArgumentError` for an algorithm of TensorFlow's."""
    if alg != "auto_select":
        raise ArgumentError(
            f'alg must be "auto_select": JAX\'s generator is chosen by its settings. Received: {alg!r}.'
        )


named.record_names(globals())
