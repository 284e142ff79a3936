"""XLA:CPU computes what a product's operand comes from in transposed order: a minimal case, with jax alone.

python benchmarks/upstream/kernel_gradient_of_two_axes.py

As jax writes the gradient of a dense layer's kernel, it sums over two axes, of examples and of times. XLA copies an
operand so that these come last, and fuses the copy with what makes the operand: a loop that reads or writes numbers
that lie far apart. With both axes named as one, nothing is copied.
jax 0.10.2, 2-core Xeon with AVX-512, ms of CPU time: 18 and 4.4 for 3,072 rows, 128 inputs and 512 outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
from jax import lax

_ROUNDS = 20


def as_written(x: jax.Array, g: jax.Array) -> jax.Array:
    """Sums over two axes."""
    return lax.dot_general(g * 0.5, x, (((0, 1), (0, 1)), ((), ()))).T


def one_axis(x: jax.Array, g: jax.Array) -> jax.Array:
    """Sums over one axis."""
    rows = (g * 0.5).reshape(-1, g.shape[-1])
    return lax.dot_general(rows, x.reshape(-1, x.shape[-1]), (((0,), (0,)), ((), ()))).T


def milliseconds(compute: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array, g: jax.Array) -> float:
    """Returns the least CPU time of a call."""
    compiled = jax.jit(compute)
    compiled(x, g).block_until_ready()
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        compiled(x, g).block_until_ready()
        times.append(time.process_time() - start)
    return min(times) * 1e3


if __name__ == "__main__":
    x, g = (jax.random.normal(jax.random.key(seed), (32, 96, width)) for seed, width in enumerate((128, 512)))
    for compute in (as_written, one_axis):
        print(f"{compute.__name__:10} {milliseconds(compute, x, g):6.1f} ms")
