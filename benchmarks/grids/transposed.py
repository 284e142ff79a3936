"""Transposed convolutions, as decoders of images have them: the gradient of the kernel, and volumes forward."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

# Examples, places along each dimension, inputs, outputs, and places of the kernel along each dimension.
_LAYERS = (
    (64, 7, 32, 32, 3),
    (64, 14, 32, 16, 3),
    (32, 14, 64, 32, 3),
    (16, 8, 128, 64, 4),
    (8, 16, 64, 64, 5),
    (64, 14, 64, 1, 5),
    (32, 14, 64, 3, 4),
    (2, 56, 32, 16, 2),
    (1, 8, 16, 16, 3),
    (4, 4, 256, 128, 4),
)


def transposed_cases() -> Iterator[Case]:
    """Yields layers with few and many channels, places and strides, in every type."""
    for layer, padding in itertools.product(_LAYERS, ("SAME", "VALID")):
        yield _case(*layer, padding=padding, quick=layer == _LAYERS[0])
    yield _case(8, 8, 64, 32, 8, stride=4)
    yield _case(16, 10, 8, 8, 5, stride=3)
    for length, rank in ((100, 1), (6, 3)):
        yield _case(8, length, 16, 16, 3, rank=rank)
        yield _case(8, length, 64, 32, 4, rank=rank)
    for volume in ((8, 12, 32, 16, 2), (2, 8, 16, 8, 3), (1, 8, 64, 32, 4), (4, 4, 16, 16, 2), (4, 8, 16, 1, 4)):
        yield _case(*volume, rank=3)
        yield _case(*volume, rank=3, is_forward=True)
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float64):
        yield _case(16, 7, 32, 32, 3, dtype=dtype)
        yield _case(8, 14, 32, 3, 5, dtype=dtype)


def _case(
    batch: int,
    size: int,
    inputs: int,
    outputs: int,
    taps: int,
    stride: int = 2,
    padding: str = "SAME",
    rank: int = 2,
    dtype: Any = jnp.float32,
    quick: bool = False,
    is_forward: bool = False,
) -> Case:
    x, kernel = (batch, *(size,) * rank, inputs), (*(taps,) * rank, inputs, outputs)

    def layer(a: jax.Array, k: jax.Array) -> jax.Array:
        return jax.lax.conv_transpose(a, k, (stride,) * rank, padding)

    spec = [jax.ShapeDtypeStruct(shape, dtype) for shape in (x, kernel)]
    out = tuple(jax.eval_shape(layer, *spec).shape)

    def of_kernel(a: jax.Array, g: jax.Array) -> Any:
        (transposed,) = jax.linear_transpose(lambda k: layer(a, k), spec[1])(g)
        return transposed

    space, places = ("x".join([str(n)] * rank) for n in (size, taps))
    about = f"{padding.lower()} stride {stride} {jnp.dtype(dtype).name}"
    name = f"transposed {batch}x{space}x{inputs} {places} -> {outputs} {about}"
    if is_forward:
        return Case(f"{name} forward", layer, (x, kernel), dtype, quick)
    return Case(f"{name} of kernel", of_kernel, (x, out), dtype, quick)
