"""Convolutions with groups of several channels, and the gradients of their kernels: a convolution of each group.

XLA's library has no groups. Forward, its own loop computes one output after the other; for a kernel's gradient it
convolves each channel with those of all groups, and keeps the diagonal.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution

# Each group is an operation to compile.
_MOST_GROUPS = 64
_MOST_STRIDED_GROUPS = 8
# Channels of a group with which a 1x1 kernel is a product worth its own call.
_LEAST_CHANNELS = 64


def grouped(convolution: Convolution) -> Compute | None:
    """Rule: few groups of a convolution's channels."""
    # XLA's own against this (ms of CPU time, float32, 3x3, 2-core EPYC): 64x32x32x64, 8 groups: forward 103 and 22,
    # input gradient 99 and 31; 8x28x28x128, 32 groups 13.0 and 10.4, 12.7 and 9.9; 8x14x14x256, 64 groups 7.0 and 5.2,
    # 6.9 and 4.9; bfloat16, 8x28x28x32, 4 groups 2.0 and 1.1, 1.9 and 1.1. One convolution with zeros between the
    # groups filled in took up to five times as long. Not taken: 8x14x14x256, 32 groups, stride 2, forward 0.47 and
    # 0.71; 16x14x14x60, 1x1, 3 groups 0.02 and 0.22 (with 240 channels 2.3 and 1.1).
    groups = convolution.feature_groups
    if not 1 < groups <= _MOST_GROUPS or convolution.batch_groups != 1 or convolution.is_empty:
        return None
    if math.prod(convolution.window) == 1 and min(convolution.rhs[-2], convolution.rhs[-1] // groups) < _LEAST_CHANNELS:
        return None
    if groups > _MOST_STRIDED_GROUPS and set(convolution.strides) != {1}:
        return None
    return partial(_each, convolution, groups, convolution.rank + 1)


def grouped_kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: few groups of a convolution's batch, as differentiation writes the kernel's gradient."""
    # XLA's own against this, as above: 64x32x32x64, 8 groups 3628 and 46; 8x28x28x128, 32 groups 2660 and 6.2;
    # 8x14x14x256, 64 groups 2560 and 3.5, with 32 groups and stride 2 325 and 1.4; 2x7x7x16, 2 groups 0.40 and 0.03.
    groups = convolution.batch_groups
    if not 1 < groups <= _MOST_GROUPS or convolution.feature_groups != 1 or convolution.is_empty:
        return None
    return partial(_each, convolution, groups, 0)


def _each(convolution: Convolution, groups: int, axis: int, image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolves the groups along the image's `axis` with those of the kernel's outputs, and joins their outputs."""
    pairs = zip(jnp.split(image, groups, axis), jnp.split(kernel, groups, -1), strict=True)
    convolve = partial(
        lax.conv_general_dilated,
        window_strides=convolution.strides,
        padding=convolution.padding,
        lhs_dilation=convolution.lhs_dilation,
        rhs_dilation=convolution.rhs_dilation,
        dimension_numbers=convolution.numbers,
        precision=convolution.precision,
    )
    return jnp.concatenate([convolve(part, taps) for part, taps in pairs], -1)
