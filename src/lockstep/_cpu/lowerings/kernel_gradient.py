"""Kernel gradients of small kernels over images with few channels, as matrix products.

Automatic differentiation writes a kernel's gradient as a convolution in which the input's channels are the batch, the
batch is summed over, and the output's gradient is the kernel: as large as the image, with as many outputs as the kernel
has places. For each place the image is laid out as a row of the left matrix; the gradient is the right one.

XLA's own, canonical, against this (ms, float32, 2-core EPYC, 2 threads). 3x3 over 64x28x28x1: 16 kernels 2.5 and 0.84,
32 kernels 1.6 and 0.57, 64 kernels 15 and 1.4; over 32x32x32x3: 32 kernels 1.5 and 0.93, 64 kernels 2.3 and 1.8, 16
kernels 0.65 and 0.94 (not taken); 8x32x32x3, 32 kernels: bfloat16 0.38 and 0.48, float64 0.50 and 0.56; 4x112x112x3, 32
kernels, stride 2: 0.50 and 0.66 (not taken). 5x5 over 64x28x28x1: 16 kernels 0.92 and 1.55 (not taken).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.canonical import Convolution, canonical
from lockstep._cpu.lowerings.windows import padded, seen, taps


def kernel_gradient(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Rule: a convolution whose kernel is as large as the image, and whose output is as small as a kernel."""
    convolution = canonical(lhs, rhs, **params)
    if convolution is None or not _is_kernel_gradient(convolution, lhs.dtype.name):
        return None

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        return convolution.leave(_product(convolution, *convolution.enter(lhs, rhs)))

    return compute


def _is_kernel_gradient(convolution: Convolution, dtype: str) -> bool:
    inputs, *places, outputs = convolution.out
    count = math.prod(places)
    area = math.prod(convolution.window)
    if not convolution.is_plain or convolution.is_empty:
        return False
    inside = all(low >= 0 for low, _ in convolution.padding)
    rows = inputs * count
    # With more rows there is less to gain: strides, and types that are converted or twice as large, take it all.
    is_medium = rows <= 27 and outputs >= 32 and inputs > 1
    is_easy = dtype == "float32" and set(convolution.rhs_dilation) == {1}
    return inside and count > 1 and area > 4 * count and (rows <= 9 or (is_medium and is_easy))


def _product(convolution: Convolution, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
    """Multiplies (places * inputs, examples * area) by (examples * area, outputs)."""
    inputs, *places, outputs = convolution.out
    rank = convolution.rank
    images = lax.transpose(lhs, (0, rank + 1, *range(1, rank + 1)))
    margins = ((0, 0), (0, 0), *((max(0, low), max(0, high)) for low, high in convolution.padding))
    images = padded(images, margins, 0)
    shape = (*images.shape[:2], *convolution.window)
    steps, dilation = (1, 1, *convolution.rhs_dilation), (1, 1, *convolution.strides)
    rows = [seen(images, (0, 0, *tap), steps, shape, dilation) for tap in taps(tuple(places))]
    left = jnp.stack(rows).reshape(len(rows) * inputs, -1)
    right = lax.transpose(rhs, (rank, *range(rank), rank + 1)).reshape(-1, outputs)
    product = lax.dot(left, right, precision=convolution.precision).reshape(*places, inputs, outputs)
    return lax.transpose(product, (rank, *range(rank), rank + 1))
