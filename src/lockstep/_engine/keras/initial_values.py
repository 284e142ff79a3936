"""Gives new variables Keras' initial values, without a program for each shape.

Keras' initializers call `jax.random` and `jax.numpy` with a variable's shape, and jax compiles a program for each shape
that it has not seen: half of the time from the start of a GoogLeNet to its first step. Threefry's bits of an element
depend on the key and on the element's place alone. So any shape is made of blocks of one size, by one program for each
distribution; zeros and ones need none. The values are the same to the bit.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import lax
from jax._src.core import trace_state_clean
from jax.extend.random import define_prng_impl, threefry2x32_p
from keras.src.backend.jax.core import JaxVariable
from keras.src.initializers.random_initializers import compute_fans

from lockstep._types import Variable

_Array = np.ndarray[Any, np.dtype[Any]]
_ELEMENTS = 1 << 15  # of a block
# Beyond, one program for the whole array takes less time, with its compilation, than so many blocks.
_MOST_ELEMENTS = 1 << 22
_WIDE = ("float64", "int64")
_FILLED = ("float32", "bfloat16", "float16", "int32", *_WIDE)
_DRAWN = ("float32", "float64")
# Keras': between them a normal distribution is truncated, and what its standard deviation becomes by that.
_LOWER, _UPPER = -2.0, 2.0
_TRUNCATED_DEVIATION = 0.87962566103423978
_is_installed = False
_thread = threading.local()


@contextlib.contextmanager
def without_programs() -> Generator[None]:
    """Has variables that are made on this thread get their values in this way."""
    before = getattr(_thread, "is_on", False)
    _install()
    _thread.is_on = True
    try:
        yield
    finally:
        _thread.is_on = before


def _install() -> None:
    """Replaces the method by which a Keras variable calls its initializer; elsewhere it only calls Keras' own."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    variables: Any = JaxVariable
    theirs = variables._initialize_with_initializer

    @functools.wraps(theirs)
    def initialize(self: Variable, initializer: Any) -> None:
        if getattr(_thread, "is_on", False):
            self._initialize_layout()
            values = None if self._layout is not None else initial_values(initializer, self._shape, self._dtype)
            if values is not None:
                # Copied: a step overwrites a variable's memory, and jax would share numpy's.
                self._initialize(jax.device_put(values, may_alias=False))
                return
        theirs(self, initializer)

    variables._initialize_with_initializer = initialize


def initial_values(initializer: Any, shape: Sequence[int], dtype: str) -> _Array | None:
    """Returns what an initializer of Keras returns; `None` for one that has to be called."""
    settings: Any = jax.config
    if (dtype in _WIDE and not settings.jax_enable_x64) or not trace_state_clean():
        return None
    if dtype in _FILLED and (value := _CONSTANTS.get(type(initializer))) is not None:
        return np.full(shape, value, jnp.dtype(dtype))
    size = math.prod(shape)
    is_threefry = settings.jax_threefry_partitionable and settings.jax_default_prng_impl == "threefry2x32"
    if dtype not in _DRAWN or not 0 < size <= _MOST_ELEMENTS or not is_threefry:
        return None
    # By its method: a class of the user's may have another one.
    parameters = _RANDOM.get(type(initializer).__call__)
    if parameters is None:
        return None
    distribution, *limits = parameters(initializer, shape)
    return _drawn(distribution, limits, _seed(initializer.seed), size, dtype).reshape(shape)


def _seed(seed: Any) -> _Array:
    """Returns the key that Keras draws from a seed."""
    return np.array([seed, 0] if isinstance(seed, int) else seed.next(), np.uint32)


def _drawn(distribution: str, limits: Sequence[float], seed: _Array, size: int, dtype: str) -> _Array:
    """Returns as many numbers of a distribution, with Keras' order of rounding."""
    values = np.empty(size, dtype)
    bounds = limits if distribution == "uniform" else (_LOWER, _UPPER)
    for first in range(0, size, _ELEMENTS):
        block = _block(distribution, dtype, np.array([*seed, first], np.uint32), *bounds)
        values[first : first + _ELEMENTS] = np.asarray(block)[: size - first]
    if distribution == "uniform":
        return values
    mean, deviation = limits
    # Not in the program: it would round once where Keras rounds twice.
    return values * deviation + mean


@functools.partial(jax.jit, static_argnums=(0, 1))
def _block(distribution: str, dtype: str, key: Any, lower: Any, upper: Any) -> Any:
    """Computes the elements of an array from one on; `key` is the seed's two words and the number of the element."""
    place, shape = jax.random.wrap_key_data(key, impl=_FROM_ELEMENT), (_ELEMENTS,)
    if distribution == "uniform":
        return jax.random.uniform(place, shape, dtype, lower, upper)
    if distribution == "normal":
        return jax.random.normal(place, shape, dtype)
    return jax.random.truncated_normal(place, lower, upper, shape, dtype)


def _bits_from(key: Any, width: int, shape: Sequence[int]) -> Any:
    """Returns the random bits of elements from one on, as jax computes those of a whole array."""
    places = key[2] + lax.iota(np.uint32, math.prod(shape))
    high, low = threefry2x32_p.bind(key[0], key[1], jnp.zeros_like(places), places)
    if width == 64:
        high, low = (lax.convert_element_type(part, np.uint64) for part in (high, low))
        return lax.shift_left(high, np.uint64(32)) | low
    return high ^ low


def _no_other_keys(*_: Any) -> Any:
    raise AssertionError("keys of elements are made from a seed's")


_FROM_ELEMENT: Any = define_prng_impl(
    key_shape=(3,),
    seed=_no_other_keys,
    split=_no_other_keys,
    fold_in=_no_other_keys,
    random_bits=_bits_from,
    name="lockstep_threefry_from_element",
    tag="lockstep_from",
)


def _variance_scaling(initializer: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    inputs, outputs = compute_fans(shape, input_axes=initializer.input_axes, output_axes=initializer.output_axes)
    fans = {"fan_in": inputs, "fan_out": outputs}.get(initializer.mode, (inputs + outputs) / 2.0)
    scale = initializer.scale / max(1.0, fans)
    if initializer.distribution == "truncated_normal":
        return "truncated normal", 0.0, math.sqrt(scale) / _TRUNCATED_DEVIATION
    if initializer.distribution == "untruncated_normal":
        return "normal", 0.0, math.sqrt(scale)
    limit = math.sqrt(3.0 * scale)
    return "uniform", -limit, limit


_CONSTANTS: dict[type, float] = {keras.initializers.Zeros: 0, keras.initializers.Ones: 1}
_RANDOM: dict[Any, Callable[[Any, Sequence[int]], tuple[Any, ...]]] = {
    keras.initializers.RandomUniform.__call__: lambda i, _: ("uniform", i.minval, i.maxval),
    keras.initializers.RandomNormal.__call__: lambda i, _: ("normal", i.mean, i.stddev),
    keras.initializers.TruncatedNormal.__call__: lambda i, _: ("truncated normal", i.mean, i.stddev),
    keras.initializers.VarianceScaling.__call__: _variance_scaling,
}
