"""Convolutions into one channel: a product of matrices for all places of the kernel, then a sum of shifted results.

It is what a decoder of images may end with, and the input gradient of a convolution of images with one channel. XLA's
kernels have one column of a matrix to compute there, and use little of a vector. Here each input place first meets all
places of the kernel.

XLA's own against this (ms, float32, 2-core EPYC, 2 threads): 64x28x28x32, 3x3: 3.2 and 1.0, in a loop 7.7 and 1.0;
64x24x24x64, 5x5: 10.8 and 2.4, in a loop 6.7 and 2.6; 64x28x28x6, 3x3: 3.5 and 0.6, in a loop 0.8 and 0.3;
2x16x16x16x16, 3x3x3: 7.3 and 0.6. With three or four outputs it was slower as often as faster, and is not taken.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.canonical import Convolution, canonical
from lockstep._cpu.lowerings.windows import apart, padded, seen, taps

# What the grid has: inputs, and places of a kernel.
_LEAST_INPUTS = 6
_MOST_TAPS = 27


def one_output(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Rule: a convolution of stride 1 into one channel, with a small kernel."""
    convolution = canonical(lhs, rhs, **params)
    if convolution is None or not _is_small(convolution):
        return None

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        lhs, rhs = convolution.enter(lhs, rhs)
        products = padded(_products(convolution, lhs, rhs), ((0, 0), (0, 0), *convolution.padding), 0)
        result = apart(lambda products: _sum(convolution, products))(products)
        return convolution.leave(result[..., None].astype(lhs.dtype))

    return compute


def _is_small(convolution: Convolution) -> bool:
    *places, inputs, outputs = convolution.rhs
    return (
        convolution.is_plain
        and outputs == 1
        and inputs >= _LEAST_INPUTS
        and 1 < math.prod(places) <= _MOST_TAPS
        and set(convolution.strides) == {1}
        and all(low >= 0 and high >= 0 for low, high in convolution.padding)
        and 0 not in (*convolution.lhs, *convolution.out)
    )


def _products(convolution: Convolution, image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Each place of the kernel with each input place: (places of the kernel, n, *space), in float32 at least."""
    dtype = jnp.promote_types(image.dtype, jnp.float32)
    inputs = image.shape[-1]
    # Of two matrices: with the image as it is the product took half as long again.
    rows = (((1,), (1,)), ((), ()))
    found = lax.dot_general(kernel.reshape(-1, inputs), image.reshape(-1, inputs), rows, convolution.precision, dtype)
    return found.reshape(-1, *image.shape[:-1])


def _sum(convolution: Convolution, products: jax.Array) -> jax.Array:
    """Adds up what each output sees: (n, *space)."""
    shape, ones = (1, *convolution.out[:-1]), (1,) * (convolution.rank + 2)
    dilation = (1, 1, *convolution.rhs_dilation)
    parts = (
        seen(products, (number, 0, *tap), ones, shape, dilation) for number, tap in enumerate(taps(convolution.window))
    )
    return functools.reduce(operator.add, parts)[0]
