"""Convolutions of images with few channels: a sum of shifted images, each times one row of the kernel.

With one or three input channels the matrix product that a convolution is has almost nothing to sum over, and XLA's
kernels spend their time on rearranging. The sum is one vector loop over the output channels.

XLA's own against this (ms, float32, 2-core EPYC, 2 threads), stride 1 unless said otherwise: 64x28x28x1, 3x3: 6 kernels
3.8 and 0.26, 32 kernels 0.45 and 0.32, 64 kernels 2.2 and 0.8; 64x28x28x1, 5x5: 6 kernels 1.5 and 0.28, 16 kernels 2.7
and 0.4, 32 kernels 0.75 and 1.1 (not taken); 32x32x32x3, 3x3: 6 kernels 2.2 and 0.32, 32 kernels 2.8 and 1.05;
16x64x64x3, 3x3, stride 2, 32 kernels: 4.8 and 0.9.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.canonical import Convolution, canonical
from lockstep._cpu.lowerings.windows import apart, padded, seen, taps

_MOST_INPUTS = 4
# Terms in the sum for each output, and terms times outputs: what the grid showed to be faster.
_MOST_TERMS = 27
_MOST_KERNEL = 864
_MOST_KERNEL_OF_ONE = 576
_CHEAP_TERMS = 9
_MANY_OUTPUTS = 32


def few_inputs(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Rule: a convolution of one to four input channels with a small kernel."""
    convolution = canonical(lhs, rhs, **params)
    if convolution is None or not _is_small(convolution):
        return None

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        lhs, rhs = convolution.enter(lhs, rhs)
        image = padded(lhs, ((0, 0), *convolution.padding, (0, 0)), 0)
        compute = partial(_sum, convolution)
        return convolution.leave((compute if _is_cheap(convolution) else apart(compute))(image, rhs))

    return compute


def _is_small(convolution: Convolution) -> bool:
    *places, inputs, outputs = convolution.rhs
    terms = inputs * math.prod(places)
    return (
        convolution.is_plain
        and 1 <= inputs <= _MOST_INPUTS
        and 1 < terms <= _MOST_TERMS
        and terms * outputs <= (_MOST_KERNEL if inputs > 1 else _MOST_KERNEL_OF_ONE)
        and outputs > 1
        # 1x28x28x1 with 32 kernels takes 0.05 ms, and 0.06 as a sum.
        and not (convolution.lhs[0] == inputs == 1 and outputs >= _MANY_OUTPUTS)
        and all(low >= 0 and high >= 0 for low, high in convolution.padding)
        and 0 not in convolution.out
    )


def _is_cheap(convolution: Convolution) -> bool:
    """Whether to let XLA repeat the sum in whatever reads it: bias, activation and its gradient need no memory then."""
    return math.prod(convolution.rhs[:-1]) <= _CHEAP_TERMS


def _sum(convolution: Convolution, image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolves a padded image; adds up in float32 at least, as XLA does."""
    result = image.dtype
    dtype = jnp.promote_types(result, jnp.float32)
    image, kernel = image.astype(dtype), kernel.astype(dtype)
    shape = (*convolution.out[:-1], 1)
    total = None
    for tap in taps(convolution.window):
        for channel in range(image.shape[-1]):
            place = (0, *tap, channel)
            dilation = (1, *convolution.rhs_dilation, 1)
            value = seen(image, place, (1, *convolution.strides, 1), shape, dilation)
            term = value * kernel[(*tap, channel)]
            total = term if total is None else total + term
    assert total is not None
    return lax.convert_element_type(total, result)
