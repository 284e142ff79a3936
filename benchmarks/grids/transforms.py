"""Affine transforms of pictures, as the layers that augment them make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

_SHAPES = ((32, 180, 180, 3), (64, 32, 32, 3), (128, 28, 28, 1), (8, 224, 224, 3), (4, 16, 16, 64), (1, 9, 9, 1))
_MODES = ("constant", "nearest", "wrap", "mirror")


def transform_cases() -> Iterator[Case]:
    """Yields pictures of many sizes, turned and zoomed, and all ways to find what lies between and beyond pixels."""
    for shape in _SHAPES:
        yield _transformed(shape, quick=shape in _SHAPES[:3])
    for mode in _MODES:
        yield _transformed((32, 64, 64, 3), mode)
    yield _transformed((32, 64, 64, 3), interpolation="nearest")
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float64):
        yield _transformed((32, 64, 64, 3), dtype=dtype)


def _transformed(
    shape: tuple[int, ...],
    mode: str = "reflect",
    interpolation: str = "bilinear",
    dtype: Any = jnp.float32,
    quick: bool = False,
) -> Case:
    # Where this is imported from decides on Keras' backend: not before it is needed.
    def compute(images: jax.Array, numbers: jax.Array) -> Any:
        from keras import ops

        transforms = _turn_and_zoom(0.3 * numbers.astype(jnp.float32), *shape[1:3])
        return ops.image.affine_transform(images, transforms, interpolation, mode, data_format="channels_last")

    name = f"transforms {'x'.join(map(str, shape))} {jnp.dtype(dtype).name} {mode} {interpolation}"
    return Case(name, compute, (shape, (shape[0], 2)), dtype, quick)


def _turn_and_zoom(numbers: jax.Array, height: int, width: int) -> jax.Array:
    """Returns transforms that turn pictures about their middle, and zoom them, given two numbers for each."""
    cosine, sine = (jnp.exp(numbers[:, 1]) * f(numbers[:, 0]) for f in (jnp.cos, jnp.sin))
    x, y, zero = width / 2, height / 2, jnp.zeros_like(cosine)
    rows = [cosine, -sine, x - x * cosine + y * sine, sine, cosine, y - x * sine - y * cosine, zero, zero]
    return jnp.stack(rows, axis=1)
