"""XLA:CPU leaves its library when a convolution's kernel is larger than the picture: a minimal case, with jax alone.

python benchmarks/upstream/convolution_larger_than_picture.py

jax 0.10.2, 2-core EPYC, ms of CPU time: 383 as written, 7 with the margins written out as a `pad`, 4 as one product.
The three compute the same. A 4x4 picture with the same kernel, four times the work, takes 13.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

_MARGINS = ((0, 0), (1, 1), (1, 1), (0, 0))
_ROUNDS = 5


def as_written(image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolves with the margins of SAME."""
    return lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def padded(image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Writes the margins out; the barrier keeps XLA from folding them into the convolution again."""
    image = lax.optimization_barrier(jnp.pad(image, _MARGINS))
    return lax.conv_general_dilated(image, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def product(image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiplies what each window sees with the kernel."""
    padded_image = lax.optimization_barrier(jnp.pad(image, _MARGINS))
    height, width = image.shape[1:3]
    seen = [padded_image[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    rows = jnp.stack(seen, 3).reshape(-1, kernel.size // kernel.shape[-1])
    return (rows @ kernel.reshape(-1, kernel.shape[-1])).reshape(*image.shape[:3], -1)


def milliseconds(compute: Callable[[jax.Array, jax.Array], jax.Array], image: jax.Array, kernel: jax.Array) -> float:
    """Returns the least CPU time of a call."""
    compiled = jax.jit(compute)
    compiled(image, kernel).block_until_ready()
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        compiled(image, kernel).block_until_ready()
        times.append(time.process_time() - start)
    return min(times) * 1e3


if __name__ == "__main__":
    kernel = jnp.ones((3, 3, 512, 512))
    for side in (2, 4):
        image = jnp.ones((32, side, side, 512))
        for compute in (as_written, padded, product):
            print(f"{side}x{side} {compute.__name__:10} {milliseconds(compute, image, kernel):8.1f} ms")
