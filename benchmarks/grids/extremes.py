"""Places of the largest values, as accuracies of classes and words take them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# Of predictions, and the axis of classes.
_SHAPES = (
    ((16, 128, 2000), -1),
    ((64, 1000), -1),
    ((4, 1000), -1),
    ((512, 10_007), -1),
    ((4, 50_257), -1),
    ((1024, 128), -1),
    ((16, 130), -1),
    ((2, 64, 64, 150), -1),
    ((64, 128, 25), -1),
    ((64, 128, 40), -1),
    ((8, 512, 96), -1),
    ((32, 127), -1),
    ((256, 64, 128), 1),
    ((100, 200, 200), 0),
    ((64, 1000, 2), 1),
    ((30, 40), 0),
    ((4096, 1000), 0),
    ((256, 200, 128), 1),
    ((2, 30_000, 16), 1),
)


def extreme_cases() -> Iterator[Case]:
    """Yields predictions of few and many examples and classes."""
    for shape, axis in _SHAPES:
        rest = shape[:axis] + shape[axis:][1:]
        name = f"argmax of {'x'.join(map(str, shape))}" + (f", axis {axis}" if axis >= 0 else "")
        yield Case(name, partial(_hits, axis), (shape, rest), jnp.float32, shape == (64, 1000))


def _hits(axis: int, predictions: jax.Array, classes: jax.Array) -> jax.Array:
    found = jnp.argmax(jnp.maximum(predictions, 0.1), axis)
    return classes + 1e-9 * (found == classes.astype(jnp.int32))
