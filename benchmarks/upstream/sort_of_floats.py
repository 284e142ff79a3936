"""XLA:CPU sorts floating-point keys by calling a comparison for each step: a minimal case, with jax alone.

python benchmarks/upstream/sort_of_floats.py

jax 0.10.2, 2-core EPYC, ms of CPU time, 1,024 rows of 128: float32 9.9 as written, 2.0 as integers of the same order;
with the places, as `argsort` needs them, 11.7 and 2.0 as one integer of 64 bits of both. A single array of integers has
a function that is compiled for it; two arrays have none, of whatever type.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

_ROUNDS = 5


def as_written(keys: jax.Array) -> jax.Array:
    """Sorts floating-point numbers."""
    return lax.sort(keys)


def as_integers(keys: jax.Array) -> jax.Array:
    """Sorts integers that have the order of the numbers."""
    return lax.sort(_ordered(keys))


def with_places(keys: jax.Array) -> jax.Array:
    """Sorts the numbers along with their places."""
    return lax.sort((keys, lax.broadcasted_iota(jnp.int32, keys.shape, 1)), num_keys=1)[1]


def with_places_in_one(keys: jax.Array) -> jax.Array:
    """Sorts integers of which the upper half has the order of the numbers, and the lower half is the place."""
    places = lax.broadcasted_iota(jnp.int64, keys.shape, 1)
    return lax.sort((_ordered(keys).astype(jnp.int64) << 32) | places).astype(jnp.int32)


def _ordered(keys: jax.Array) -> jax.Array:
    bits = lax.bitcast_convert_type(keys, jnp.int32)
    return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def milliseconds(compute: Callable[[jax.Array], jax.Array], keys: jax.Array) -> float:
    """Returns the least CPU time of a call."""
    compiled = jax.jit(compute)
    compiled(keys).block_until_ready()
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        compiled(keys).block_until_ready()
        times.append(time.process_time() - start)
    return min(times) * 1e3


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    keys = jax.random.normal(jax.random.key(0), (1024, 128), jnp.float32)
    for compute in (as_written, as_integers, with_places, with_places_in_one):
        print(f"{compute.__name__:18} {milliseconds(compute, keys):8.1f} ms")
