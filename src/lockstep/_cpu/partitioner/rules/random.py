"""Rules for random numbers: every replica draws the numbers of the whole batch, or its own of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._cpu.partitioner.layout import replica_number, sharded
from lockstep._cpu.partitioner.rules.base import Call, Decision, rule
from lockstep._types import Aval

try:
    from jax.extend.random import threefry_prng_impl as _threefry
except ImportError:  # Then numbers are drawn for the whole batch, and sliced.
    _threefry = None

_THREEFRY = "key<fry>"


def bits_as_jaxpr(key: Aval, params: dict[str, Any]) -> Any:
    """Returns the operations of `random_bits`, or `None` where it is better taken as one."""
    # jax's usual generator hashes the number of each element, so a block of its output can be computed alone. Its own
    # definition is traced here, so that what is divided is what jax would compute.
    shape = tuple(params["shape"])
    if _threefry is None or str(key.dtype) != _THREEFRY or key.shape or not shape:
        return None
    return _bits(key.dtype, params["bit_width"], shape, numbers_elements())


def numbers_elements() -> bool:
    """Returns whether jax now hashes the number of each element, or halves of the whole array."""
    config: Any = jax.config
    return bool(config.jax_threefry_partitionable)


@functools.lru_cache(maxsize=256)
def _bits(key: Aval, bit_width: int, shape: tuple[int, ...], partitionable: bool) -> Any:
    del partitionable  # Part of the key of the cache.
    assert _threefry is not None
    implementation: Any = _threefry

    def draw(key: Aval) -> Any:
        return implementation.random_bits(jax.random.key_data(key), bit_width, shape)

    return jax.make_jaxpr(draw)(jax.ShapeDtypeStruct((), key))


@rule("iota_2x32_shape", sliceable=True)
def element_numbers(call: Call) -> Decision | None:
    """Numbers each element of an array, as two halves of 64 bits."""
    axis, shape = call.wanted_axis, tuple(call.params["shape"])
    # Up to there the upper half is zero on all replicas, and the lower one does not overflow.
    if axis is None or math.prod(shape) >= 2**32:
        return None
    own = call.local(shape, axis)

    def run(_: Sequence[Any]) -> Sequence[Any]:
        first = lax.convert_element_type(replica_number() * own[axis], np.dtype(np.uint32))
        low = jnp.zeros(own, np.uint32)
        for dimension in range(len(shape)):
            numbers = lax.broadcasted_iota(np.dtype(np.uint32), own, dimension)
            stride = np.uint32(math.prod(shape[dimension + 1 :]))
            low = low + (numbers + first if dimension == axis else numbers) * stride
        return [jnp.zeros(own, np.uint32), low]

    return Decision([], [sharded(axis)] * 2, run=run)
