"""XLA:CPU convolves all groups with each other for a kernel's gradient: a minimal case, with jax alone.

python benchmarks/upstream/kernel_gradient_of_groups.py

jax 0.10.2, 2-core EPYC, ms of CPU time for 8x28x28x64 with 8 groups: the gradient as written takes some hundred times
as long as the gradients of the eight convolutions that it consists of.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

_GROUPS = 8
_ROUNDS = 3


def convolve(image: jax.Array, kernel: jax.Array, groups: int) -> jax.Array:
    """Convolves with groups."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def as_written(image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolves the groups in one operation."""
    return convolve(image, kernel, _GROUPS)


def each(image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolves group by group."""
    pairs = zip(jnp.split(image, _GROUPS, -1), jnp.split(kernel, _GROUPS, -1), strict=True)
    return jnp.concatenate([convolve(a, k, 1) for a, k in pairs], -1)


def milliseconds(compute: Callable[[jax.Array, jax.Array], jax.Array], image: jax.Array, kernel: jax.Array) -> float:
    """Returns the least CPU time of the kernel's gradient."""
    gradient = jax.jit(jax.grad(lambda k: (compute(image, k) ** 2).sum()))
    gradient(kernel).block_until_ready()
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        gradient(kernel).block_until_ready()
        times.append(time.process_time() - start)
    return min(times) * 1e3


if __name__ == "__main__":
    image, kernel = jnp.ones((8, 28, 28, 64)), jnp.ones((3, 3, 64 // _GROUPS, 64))
    for compute in (as_written, each):
        print(f"{compute.__name__:10} {milliseconds(compute, image, kernel):8.1f} ms")
