"""JAX writes threefry's rounds as a loop for the CPU, which makes masks slow to draw and to compile.

python benchmarks/upstream/threefry_in_a_loop.py

jax 0.10.2, 2-core Xeon with AVX-512, ms of CPU time for 1.2 million numbers: 9.6 as it is, 0.9 written out, which is
one vector loop without memory in between. To compile takes 1.0 s and 0.1 s. The bits are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_SHAPE = (32, 4, 96, 96)
_ROUNDS = 5


def as_it_is(words: jax.Array) -> jax.Array:
    """Draws a mask."""
    return _uniform(jax.random.bits(jax.random.wrap_key_data(words), _SHAPE)) < 0.9


def written_out(words: jax.Array) -> jax.Array:
    """Draws the same mask with the 20 rounds one after the other."""
    keys = (words[0], words[1], words[0] ^ words[1] ^ np.uint32(0x1BD11BDA))
    high = jnp.broadcast_to(keys[0], _SHAPE)
    low = lax.iota(jnp.uint32, high.size).reshape(_SHAPE) + keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            high = high + low
            low = high ^ (low << np.uint32(rotation) | low >> np.uint32(32 - rotation))
        high, low = high + keys[(group + 1) % 3], low + keys[(group + 2) % 3] + np.uint32(group + 1)
    return _uniform(high ^ low) < 0.9


def _uniform(bits: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(bits >> np.uint32(9) | np.uint32(0x3F800000), jnp.float32) - 1


def milliseconds(draw: Callable[[jax.Array], jax.Array], words: jax.Array) -> tuple[float, float]:
    """Returns the CPU time of a compilation, and the least of a call."""
    start = time.process_time()
    compiled = jax.jit(draw).lower(words).compile()
    compiling = time.process_time() - start
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        compiled(words).block_until_ready()
        times.append(time.process_time() - start)
    return compiling * 1e3, min(times) * 1e3


if __name__ == "__main__":
    words = jax.random.key_data(jax.random.key(7))
    assert (as_it_is(words) == written_out(words)).all()
    for draw in (as_it_is, written_out):
        print(f"{draw.__name__:12} compiled in {{:6.0f}} ms, drawn in {{:6.2f}} ms".format(*milliseconds(draw, words)))
