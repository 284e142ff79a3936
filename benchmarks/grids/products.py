"""Products of matrices: the gradients of dense layers' kernels, and of what a batch has in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# Examples and other leading axes, inputs, outputs.
_LAYERS = (
    ((32, 96), 128, 512),
    ((32, 96), 512, 128),
    ((32, 96), 128, 128),
    ((16, 64), 256, 1024),
    ((16, 64), 128, 8000),
    ((8, 512), 64, 64),
    ((8, 512), 64, 256),
    ((64, 64), 48, 128),
    ((128, 20), 10, 30),
    ((4, 7, 9), 33, 65),
    ((2, 3), 16, 4),
    ((512,), 784, 64),
    ((2048,), 128, 10),
    ((2048,), 128, 32),
    ((64,), 2048, 512),
    ((1024,), 1024, 256),
    ((1024,), 4096, 64),
    ((4096,), 64, 16),
    ((16384,), 512, 100),
    ((32,), 512, 10),
    ((8192,), 64, 2),
    ((12544,), 48, 16),
    ((12544,), 32, 25),
    ((100352,), 24, 16),
    ((50176,), 96, 24),
    ((4096,), 40, 32),
    ((1024,), 33, 31),
    ((1,), 4096, 512),
    ((100,), 300, 70),
)

# Examples and other leading axes, and the shape that they have in common.
_COMMON = (
    ((32,), (128, 192)),
    ((16,), (512, 256)),
    ((16,), (56, 56, 64)),
    ((2,), (300, 300, 3)),
    ((3,), (129, 128)),
    ((8,), (128, 128)),
    ((512,), (20_000,)),
    ((4, 8), (64, 1024)),
    ((64,), (17_000,)),
)


def product_cases() -> Iterator[Case]:
    """Yields layers with few and many rows, inputs and outputs, in every type, and sums over rows."""
    for rows, shape in _COMMON:
        yield _of_common(rows, shape, quick=rows == (16,))
    for layer in _LAYERS:
        yield _of_kernel(*layer, quick=layer in _LAYERS[:2])
    for dtype, layer in itertools.product((jnp.bfloat16, jnp.float16, jnp.float64), (_LAYERS[0], _LAYERS[11])):
        yield _of_kernel(*layer, dtype=dtype)


def _of_common(rows: tuple[int, ...], shape: tuple[int, ...], quick: bool) -> Case:
    def compute(x: jax.Array, table: jax.Array) -> jax.Array:
        return table - 0.1 * jnp.sum(jnp.tanh(x), tuple(range(len(rows))))

    name = f"sum of {'x'.join(map(str, rows))} rows of {'x'.join(map(str, shape))}"
    return Case(name, compute, ((*rows, *shape), shape), jnp.float32, quick)


def _of_kernel(rows: tuple[int, ...], inputs: int, outputs: int, dtype: Any = jnp.float32, quick: bool = False) -> Case:
    def compute(x: jax.Array, g: jax.Array, kernel: jax.Array) -> jax.Array:
        # As in a step: something makes both operands, and takes the result.
        x, g = jnp.tanh(x), g * 0.5
        change = jax.vjp(lambda k: jnp.tensordot(x, k, 1), kernel)[1](g)[0]
        return kernel - 0.1 * change

    name = f"product {'x'.join(map(str, rows))} rows, {inputs} -> {outputs} {jnp.dtype(dtype).name} of kernel"
    return Case(name, compute, ((*rows, inputs), (*rows, outputs), (inputs, outputs)), dtype, quick)
