"""Places of the largest values, as accuracies of classes and words take them."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# Of predictions; the last axis is that of classes.
_SHAPES = (
    (16, 128, 2000),
    (64, 1000),
    (4, 1000),
    (512, 10_007),
    (4, 50_257),
    (1024, 128),
    (16, 130),
    (2, 64, 64, 150),
)


def extreme_cases() -> Iterator[Case]:
    """Yields predictions of few and many examples and classes."""
    for shape in _SHAPES:
        yield Case(
            f"argmax of {'x'.join(map(str, shape))}", _hits, (shape, shape[:-1]), jnp.float32, shape == (64, 1000)
        )


def _hits(predictions: jax.Array, classes: jax.Array) -> jax.Array:
    found = jnp.argmax(jnp.maximum(predictions, 0.1), -1)
    return classes + 1e-9 * (found == classes.astype(jnp.int32))
