"""Arrays that are sorted by one key: the key and the place of each element are one integer, and integers are sorted.

XLA's CPU compiler sorts single arrays of integers by a function that it has compiled for them. For floating-point
keys, and where more than one array is sorted, it calls the comparison of two elements for each step: 8x128x128 float32
take 10 ms (with their places, as `argsort` and gradients need them, 12), and 2 as integers (2-core EPYC with AVX-512).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._types import Aval

_FLOATS = ("float32", "bfloat16", "float16")
_INTEGERS = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32")
_LEAST_SIZE = 2

Compute = Callable[..., list[jax.Array]]


def sort(*operands: Aval, dimension: int, is_stable: bool, num_keys: int) -> Compute | None:
    """Rule: a sort of arrays by the first of them, along one axis."""
    key = operands[0]
    is_of_integers = key.dtype.name in _INTEGERS
    if num_keys != 1 or (is_of_integers and len(operands) == 1) or not (is_of_integers or key.dtype.name in _FLOATS):
        return None
    if key.shape[dimension] < _LEAST_SIZE or 0 in key.shape:
        return None

    def compute(*arrays: jax.Array) -> list[jax.Array]:
        places = _sorted_places(arrays[0], dimension)
        return [jnp.take_along_axis(array, places, dimension, mode="clip") for array in arrays]

    return compute


def _sorted_places(keys: jax.Array, axis: int) -> jax.Array:
    """Returns where each element of the sorted keys was; of those that are equal, the first comes first."""
    with jax.enable_x64(True):
        high = lax.shift_left(_ordered(keys), np.int64(32))
        packed = high | lax.broadcasted_iota(np.int64, keys.shape, axis)
        return lax.sort(packed, dimension=axis, is_stable=False).astype(np.int32)


def _ordered(keys: jax.Array) -> jax.Array:
    """Returns int64 from -2**31 on, of 32 bits, in the order of keys: zeros are equal, NaNs too, and the last."""
    if keys.dtype.name in _INTEGERS:
        least = 1 << 31 if keys.dtype == np.uint32 else 0
        return keys.astype(np.int64) - np.int64(least)
    keys = keys.astype(np.float32)
    keys = jnp.where(keys == 0, np.float32(0), jnp.where(jnp.isnan(keys), np.float32(np.nan), keys))
    bits = lax.bitcast_convert_type(keys, np.int32)
    # Of negative numbers the larger magnitude is the smaller one.
    return jnp.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits).astype(np.int64)
