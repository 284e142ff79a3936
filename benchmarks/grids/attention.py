"""Attention, and products of many small matrices, with their gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# Batch, places, heads, size of a head.
_SHAPES = (
    (1, 64, 2, 32),
    (16, 49, 3, 32),
    (16, 64, 8, 32),
    (16, 197, 3, 64),
    (64, 20, 4, 8),
    (64, 65, 4, 16),
    (32, 96, 8, 16),
    (128, 17, 2, 16),
    (4, 256, 8, 64),
    (8, 512, 4, 16),
    (2, 1024, 4, 32),
    (1, 2048, 2, 64),
)
# Matrices, rows, summed, columns.
_MATRICES = ((4096, 8, 8, 8), (1024, 16, 16, 16), (512, 32, 32, 32), (256, 64, 64, 64), (2048, 8, 64, 8), (33, 5, 7, 3))


def attention_cases() -> Iterator[Case]:
    """Yields attention as `jax.nn` has it and as einsums have it, and products of matrices."""
    for (name, attend), shape in itertools.product(_KINDS.items(), _SHAPES):
        yield Case(
            f"attention {'x'.join(map(str, shape))}, {name}",
            _step_of(attend),
            (shape, shape, shape),
            jnp.float32,
            shape == (16, 64, 8, 32),
        )
    for count, rows, summed, columns in _MATRICES:
        yield Case(
            f"gradients of {count} products of {rows}x{summed} by {summed}x{columns}",
            _step_of(lambda a, b, _: a @ b),
            ((count, rows, summed), (count, summed, columns), (1,)),
            jnp.float32,
        )


def _causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def _einsum(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    weights = jax.nn.softmax(jnp.einsum("aecd,abcd->acbe", k, q * 0.2), -1)
    return jnp.einsum("acbe,aecd->abcd", weights, v)


_KINDS: dict[str, Callable[..., jax.Array]] = {
    "plain": jax.nn.dot_product_attention,
    "causal": _causal,
    "einsums": _einsum,
}


def _step_of(function: Callable[..., jax.Array]) -> Callable[..., tuple[jax.Array, ...]]:
    """Returns a step against the gradient of the mean square of a function's result."""

    def step(*operands: jax.Array) -> tuple[jax.Array, ...]:
        gradients = jax.grad(lambda x: jnp.mean(function(*x) ** 2))(operands)
        return tuple(x - 0.1 * g for x, g in zip(operands, gradients, strict=True))

    return step
