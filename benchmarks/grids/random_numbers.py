"""Random numbers: dropout forward and back, and numbers of the usual distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.grids.case import Case

_MASKS = (
    (32, 4, 96, 96),
    (32, 96, 128),
    (8, 4, 512, 512),
    (64, 26, 26, 32),
    (256, 1000),
    (64, 128),
    (32, 1),
    (3, 5),
    (128, 7, 3),
)
_DRAWS: dict[str, Callable[..., Any]] = {
    "normal": jax.random.normal,
    "uniform": jax.random.uniform,
    "gumbel": jax.random.gumbel,
    "integers": lambda key, shape, dtype: jax.random.randint(key, shape, 0, 100).astype(dtype),
}


def random_cases() -> Iterator[Case]:
    """Yields large and small masks, and numbers of every distribution, in every type."""
    for shape in _MASKS:
        yield _dropout(shape, quick=shape in _MASKS[:2])
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float64):
        yield _dropout((32, 96, 128), dtype)
    for name, draw in _DRAWS.items():
        for shape in ((128, 16), (32, 96, 128), (1,)):
            yield _numbers(name, draw, shape)


def _key(x: jax.Array) -> jax.Array:
    """A key that the compiler does not know."""
    return jax.random.wrap_key_data(lax.bitcast_convert_type(x.ravel()[:2].astype(jnp.float32), jnp.uint32))


def _dropout(shape: tuple[int, ...], dtype: Any = jnp.float32, quick: bool = False) -> Case:
    def compute(seed: jax.Array, x: jax.Array, g: jax.Array) -> Any:
        mask = jax.random.bernoulli(_key(seed), 0.9, shape)
        found = jnp.tanh(jnp.where(mask, x / 0.9, 0))
        return found, jnp.where(mask, g / 0.9, 0) * (1 - found * found)

    name = f"random dropout {'x'.join(map(str, shape))} {jnp.dtype(dtype).name} forward and back"
    return Case(name, compute, ((2,), shape, shape), dtype, quick)


def _numbers(kind: str, draw: Callable[..., Any], shape: tuple[int, ...]) -> Case:
    def compute(seed: jax.Array, x: jax.Array) -> Any:
        return x + draw(_key(seed), shape, jnp.float32)

    return Case(f"random {kind} {'x'.join(map(str, shape))} float32 numbers", compute, ((2,), shape))
