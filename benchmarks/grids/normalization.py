"""Batch and layer normalization as Keras writes them, with a relu, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# Shape of the input; those of the first line are larger than caches.
_SHAPES = (
    *((16, 112, 112, 96), (16, 56, 56, 144), (8, 64, 64, 256), (64, 32, 32, 64), (128, 256, 256)),
    *((16, 28, 28, 192), (8, 24, 24, 728), (32, 16, 16, 64), (32, 96, 128)),
)
_QUICK = 1


def normalization_cases() -> Iterator[Case]:
    """Yields both, of large arrays and of small ones."""
    for number, shape in enumerate(_SHAPES):
        for kind, axes in (("batch", tuple(range(len(shape) - 1))), ("layer", (len(shape) - 1,))):
            name = f"{kind} normalization {'x'.join(map(str, shape))} both ways"
            compute = lambda x, g, axes=axes: _both_ways(x, g, axes)  # noqa: E731
            yield Case(name, compute, (shape, shape), jnp.float32, number < _QUICK, in_loop=False)


def _both_ways(x: jax.Array, g: jax.Array, axes: tuple[int, ...]) -> Any:
    def normalize(x: jax.Array) -> jax.Array:
        mean, variance = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
        inverse = jax.lax.rsqrt(variance + 1e-3)
        return jax.nn.relu(x * inverse - mean * inverse)

    y, transpose = jax.vjp(normalize, x)
    return y, transpose(g)
