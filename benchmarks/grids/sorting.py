"""Arrays that are sorted, and the places of their elements."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# And the axis.
_SHAPES = (
    ((8, 128, 128), 2),
    ((8, 128, 128), 1),
    ((64, 1024), 1),
    ((64, 1024), 0),
    ((1, 100_000), 1),
    ((4096, 16), 1),
    ((4096, 3), 1),
    ((2, 4096), 0),
    ((16, 64), 1),
    ((1, 32), 1),
    ((3, 2), 1),
)


def sorting_cases() -> Iterator[Case]:
    """Yields sorts along one axis."""
    for shape, axis in _SHAPES:
        name = f"{'x'.join(map(str, shape))}, axis {axis}"
        of_gradient = jax.grad(lambda x, axis=axis: (jnp.sort(x, axis) ** 3).sum())
        yield Case(f"sort of {name}", lambda x, axis=axis: jnp.sort(x, axis), (shape,), quick=shape == (64, 1024))
        yield Case(f"argsort of {name}", lambda x, axis=axis: jnp.argsort(x, axis) * 1.0, (shape,))
        yield Case(f"gradient of a sort of {name}", of_gradient, (shape,))
