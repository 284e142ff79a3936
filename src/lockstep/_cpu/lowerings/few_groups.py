"""Kernel gradients of depthwise convolutions of few channels with several outputs each, as a first layer has them."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from lockstep._cpu.lowerings.convolution import Compute, Convolution
from lockstep._cpu.lowerings.foreign_convolutions import gradient_of_kernel, kernel_gradient_call

_MOST_CHANNELS = 8


def few_groups_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the gradient without groups, of all inputs by all outputs, of which the pairs of a group are kept."""
    # It is so many times the products as there are channels, by oneDNN in place of `depthwise_kernel_gradient` (ms,
    # float32, 2-core EPYC with AVX-512, and seconds to compile): 16x48x48x3, 8 outputs each, 5x5 2.8 (2.6) and 0.53
    # (0.0), 3x3 with 2 outputs 0.36 (0.5) and 0.18; 8x128x128x3, 8 of 3x3 5.2 (1.1) and 0.98; 16x24x24x8, 4 of 3x3 0.80
    # (1.0) and 0.37. Not taken: 16x48x48x3, one of 3x3 0.14 and 0.49.
    groups, outputs = convolution.batch_groups, convolution.rhs[-1]
    if not 1 < groups <= _MOST_CHANNELS or groups != convolution.lhs[0] or outputs == groups:
        return None
    whole = replace(convolution, batch_groups=1, out=(groups, *convolution.out[1:]))
    call = kernel_gradient_call(whole)
    if call is None:
        return None
    gradient = gradient_of_kernel(call)

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        pairs = gradient(lhs, rhs).reshape(groups, -1, groups, outputs // groups)
        return jnp.stack([pairs[i, :, i] for i in range(groups)], axis=1).reshape(convolution.out)

    return compute
