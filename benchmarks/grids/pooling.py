"""Pooling and its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.grids.case import Case

# Shape of the input, window, strides; every axis.
_CHANNELS_LAST = (
    ((64, 26, 26, 32), (1, 2, 2, 1), (1, 2, 2, 1)),
    ((64, 26, 26, 32), (1, 3, 3, 1), (1, 2, 2, 1)),
    ((8, 56, 56, 64), (1, 2, 2, 1), (1, 2, 2, 1)),
    ((8, 56, 56, 64), (1, 3, 3, 1), (1, 2, 2, 1)),
    ((8, 28, 28, 64), (1, 3, 3, 1), (1, 1, 1, 1)),
    ((2, 112, 112, 64), (1, 3, 3, 1), (1, 2, 2, 1)),
    ((16, 14, 14, 6), (1, 2, 2, 1), (1, 2, 2, 1)),
    ((32, 7, 7, 512), (1, 2, 2, 1), (1, 2, 2, 1)),
    ((32, 7, 7, 512), (1, 7, 7, 1), (1, 7, 7, 1)),
    ((1, 28, 28, 32), (1, 2, 2, 1), (1, 2, 2, 1)),
    ((32, 256, 64), (1, 2, 1), (1, 2, 1)),
    ((32, 256, 64), (1, 3, 1), (1, 2, 1)),
    ((4, 16, 16, 16, 32), (1, 2, 2, 2, 1), (1, 2, 2, 2, 1)),
)
_CHANNELS_FIRST = (
    ((64, 32, 26, 26), (1, 1, 2, 2), (1, 1, 2, 2)),
    ((16, 64, 28, 28), (1, 1, 3, 3), (1, 1, 2, 2)),
)
_QUICK = 2


def pooling_cases() -> Iterator[Case]:
    """Yields max and sum pooling and their gradients, and max pooling behind a relu."""
    for number, (shape, window, strides) in enumerate((*_CHANNELS_LAST, *_CHANNELS_FIRST)):
        for padding in ("VALID", "SAME"):
            yield from _cases(shape, window, strides, padding, jnp.float32, number < _QUICK)
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float64):
        for shape, window, strides in _CHANNELS_LAST[:2]:
            yield from _cases((16, *shape[1:]), window, strides, "SAME", dtype, False)


def _cases(shape: Any, window: Any, strides: Any, padding: str, dtype: Any, quick: bool) -> Iterator[Case]:
    def pool(x: jax.Array, kind: str) -> jax.Array:
        start, combine = (-np.inf, lax.max) if kind == "max" else (0.0, lax.add)
        return lax.reduce_window(x, x.dtype.type(start), combine, window, strides, padding)

    def gradient(x: jax.Array, g: jax.Array, kind: str) -> Any:
        return jax.vjp(lambda v: pool(v, kind), x)[1](g)[0]

    def behind_relu(x: jax.Array, g: jax.Array) -> Any:
        y, transpose = jax.vjp(lambda v: pool(jax.nn.relu(v), "max"), x)
        return y, transpose(g)

    name = f"{'x'.join(map(str, shape))} window {window} strides {strides} {padding.lower()} {jnp.dtype(dtype).name}"
    out = lax.reduce_window_shape_tuple(shape, window, strides, lax.padtype_to_pads(shape, window, strides, padding))
    for kind in ("max", "sum"):
        yield Case(f"{kind} pool {name} forward", lambda x, k=kind: pool(x, k), (shape,), dtype, quick, in_loop=False)
        of_input = lambda x, g, k=kind: gradient(x, g, k)  # noqa: E731
        yield Case(f"{kind} pool {name} gradient", of_input, (shape, out), dtype, quick, in_loop=False)
    yield Case(f"relu and max pool {name} both ways", behind_relu, (shape, out), dtype, quick, in_loop=False)
