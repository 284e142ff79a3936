"""Random numbers in a model_fn, in functions of `strategy.run` and in models of Keras: of a seed that is a variable.

So each step draws others, and each replica its own.

The functions have the names and arguments of those of `tf.random` that draw from the process's generator, after a key.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.random.seed_generator import draw_seed

from lockstep._types import Array, Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32, int64
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.model_seeds import draw_key
from lockstep.compat.tensorflow._ops.named import is_of_replica, model_fn_scope, replica_scope
from lockstep.compat.tensorflow._types import Argument, DTypeLike, ShapeLike, SizeLike
from lockstep.errors import ArgumentError

# The collection of a model_fn that remembers how what was drawn can be drawn again.
_DRAWN = "lockstep.compat/drawn"
# By their seed.
_generators: dict[int | None, Any] = {}


def redirect(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of `tf.random` draw here while a model_fn is traced."""
    here: Callable[..., Any] = globals()[function.__name__]
    signature = inspect.signature(function)

    @functools.wraps(function)
    def draw(*args: Argument, **kwargs: Argument) -> Any:
        if not dispatch.is_traced():
            return function(*args, **kwargs)
        scope, is_replica = model_fn_scope(), is_of_replica()
        key = draw_key() if scope is None and not is_replica else None
        if scope is None and not is_replica and key is None:
            return function(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        arguments.pop("name", None)
        seed = arguments.pop("seed", None)
        if key is not None:
            # The seed of a model is one for all of its numbers, whatever seed an operation was given.
            return here(key, **arguments)
        again = functools.partial(here, **arguments)
        if scope is None:
            value = again(draw_seed(generator_of(None if seed is None else dispatch.to_static(seed))))
            # As long as the trace lasts.
            vars(replica_scope()).setdefault(_DRAWN, []).append((value, seed, again))
            return value
        # A generator of its own, which the model_fn makes anew, and by that finds again, in each call.
        generator = keras.random.SeedGenerator(None if seed is None else dispatch.to_static(seed))
        value = here(draw_seed(generator), **arguments)
        # A tf.Variable made of this value, a tracer, has to draw it again in its initializer.
        scope.collections.setdefault(_DRAWN, []).append((value, seed, again))
        return value

    return draw


def generator_of(seed: int | None) -> Any:
    """Returns the generator that functions of replicas draw from; each seed has its own, as in TensorFlow."""
    if seed not in _generators:
        _generators[seed] = keras.random.SeedGenerator(random.getrandbits(31) if seed is None else seed)
    return _generators[seed]


def start_anew() -> None:
    """Makes generators of functions of replicas, which compiled functions hold, start anew."""
    # Assigned, not replaced: compiled functions hold these very variables.
    for seed, generator in _generators.items():
        first = random.getrandbits(31) if seed is None else seed
        generator.state.assign(np.asarray([first, 0], generator.state.dtype))


def initializer_of(value: Tensor) -> Callable[..., Any] | None:
    """Returns what draws such numbers as `value`, a result of `tf.random` in this function; `None` if it is another.

    A variable whose first value is random is made of it.
    """
    scope, of_replica = model_fn_scope(), replica_scope()
    known = () if of_replica is None else vars(of_replica).get(_DRAWN, ())
    for drawn, seed, again in known if scope is None else scope.collections.get(_DRAWN, ()):
        if drawn is value:
            # Python's generator is in the same state in each call of the model_fn.
            number = random.getrandbits(31) if seed is None else dispatch.to_static(seed)
            return lambda shape, dtype: again(jax.random.PRNGKey(number)).astype(dtype)
    return None


def _type(dtype: DTypeLike) -> Any:
    return dispatch.usable_dtype(dispatch.DEVICE, dtype)


def uniform(key: Array, shape: ShapeLike, minval: Tensor = 0, maxval: Tensor = None, dtype: DTypeLike = float32) -> Any:
    high = 1 if maxval is None else maxval
    if as_dtype(dtype).is_integer:
        if maxval is None:
            raise ArgumentError("Integers are drawn below a maxval, which must be given. Received none.")
        return jax.random.randint(key, dispatch.to_shape(shape), minval, high, _type(dtype))
    drawn = jax.random.uniform(key, dispatch.to_shape(shape), _type(dtype))
    return (minval + drawn * (high - minval)).astype(_type(dtype))


def normal(key: Array, shape: ShapeLike, mean: Tensor = 0.0, stddev: Tensor = 1.0, dtype: DTypeLike = float32) -> Any:
    drawn = jax.random.normal(key, dispatch.to_shape(shape), _type(dtype))
    return (drawn * stddev + mean).astype(_type(dtype))


def truncated_normal(
    key: Array, shape: ShapeLike, mean: Tensor = 0.0, stddev: Tensor = 1.0, dtype: DTypeLike = float32
) -> Any:
    drawn = jax.random.truncated_normal(key, -2.0, 2.0, dispatch.to_shape(shape), _type(dtype))
    return (drawn * stddev + mean).astype(_type(dtype))


def gamma(key: Array, shape: ShapeLike, alpha: Tensor, beta: Tensor = None, dtype: DTypeLike = float32) -> Any:
    a, b = jnp.asarray(alpha, _type(dtype)), jnp.asarray(1.0 if beta is None else beta, _type(dtype))
    sizes = (*dispatch.to_shape(shape), *jnp.broadcast_shapes(a.shape, b.shape))
    return jax.random.gamma(key, a, sizes, _type(dtype)) / b


def poisson(key: Array, shape: ShapeLike, lam: Tensor, dtype: DTypeLike = float32) -> Any:
    rate = jnp.asarray(lam, jnp.float32)
    return jax.random.poisson(key, rate, (*dispatch.to_shape(shape), *rate.shape)).astype(_type(dtype))


def categorical(key: Array, logits: Tensor, num_samples: SizeLike, dtype: DTypeLike = int64) -> Any:
    rows = jnp.asarray(dispatch.pick(logits)[1])
    count = dispatch.to_static(num_samples)
    return jax.random.categorical(key, rows[:, None], shape=(rows.shape[0], count)).astype(_type(dtype))


def shuffle(key: Array, value: Tensor) -> Any:
    return jax.random.permutation(key, jnp.asarray(dispatch.pick(value)[1]))
