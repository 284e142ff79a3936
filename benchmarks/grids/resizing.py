"""Resized pictures, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# Pictures, and the new height and width.
_SHAPES = (
    ((8, 64, 64, 16), (128, 128)),
    ((8, 64, 64, 3), (128, 128)),
    ((2, 256, 256, 3), (224, 224)),
    ((16, 48, 48, 64), (96, 96)),
    ((4, 16, 16, 32), (64, 64)),
    ((4, 64, 64, 19), (128, 128)),
    ((1, 128, 128, 21), (512, 512)),
    ((8, 8, 8, 256), (16, 16)),
    ((2, 10, 10, 512), (20, 20)),
    ((16, 16, 16, 8), (32, 32)),
    ((4, 100, 100, 16), (150, 150)),
    ((4, 64, 64, 16), (32, 32)),
    ((4, 96, 96, 32), (64, 64)),
    ((8, 32, 32, 32), (32, 64)),
    ((8, 32, 32, 1), (64, 64)),
    ((1, 16, 16, 16), (33, 17)),
    ((2, 64, 128, 24), (128, 512)),
    ((8, 12, 12, 32), (96, 96)),
    ((8, 24, 24, 32), (96, 96)),
    ((4, 8, 8, 21), (256, 256)),
    ((8, 4, 4, 256), (8, 8)),
    ((2, 5, 5, 16), (10, 10)),
)


def resizing_cases() -> Iterator[Case]:
    """Yields pictures that become larger and smaller."""
    for shape, sizes in _SHAPES:
        for method in ("bilinear", "bicubic"):
            new_shape = (shape[0], *sizes, shape[-1])
            resize = partial(_resized, new_shape, method)
            name = f"{method}, {'x'.join(map(str, shape))} to {sizes[0]}x{sizes[1]}"
            yield Case(f"resizing {name}", resize, (shape,), jnp.float32, shape == (8, 64, 64, 16))
            yield Case(f"gradient of resizing {name}", _gradient_of(resize, shape), (new_shape,), jnp.float32)


def _resized(shape: tuple[int, ...], method: str, pictures: jax.Array) -> jax.Array:
    return jax.image.resize(pictures, shape, method)


def _gradient_of(resize: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]) -> Callable[[jax.Array], jax.Array]:
    def gradient(cotangents: jax.Array) -> jax.Array:
        return jax.linear_transpose(resize, jax.ShapeDtypeStruct(shape, cotangents.dtype))(cotangents)[0]

    return gradient
