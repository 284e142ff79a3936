"""Kernel gradients of transposed convolutions, as decoders, GANs and U-Nets have them.

Automatic differentiation writes such a gradient as a convolution of the dilated input with the output's gradient as its
kernel. XLA exchanges the two, because that kernel is the larger one, and marks the other as read backwards; for that it
has a naive loop only. Exchanged here, with the small result reversed instead, it is the kernel gradient of an ordinary
convolution with strides, which all is fast for.

XLA's own against this (ms, float32, 2-core EPYC, 2 threads), stride 2: 64x7x7x32, 32 kernels of 3x3 11.8 and 2.1;
64x14x14x32, 16 of 3x3 25 and 4.8; 16x32x32x64, 64 of 4x4 760 and 27; 32x14x14x64, 3 of 4x4 10.9 and 1.3; 32x100x64, 64
of 4 31 and 1.9; alike in loops. It is not taken for volumes (2x8x8x8x16, 8 of 3x3x3: 2.2 and 3.8), nor for a single
image (1x8x8x16, 16 of 3x3: 0.1 and 0.2).
"""

from __future__ import annotations

import math
from typing import Any

import jax
from jax import lax

from lockstep._cpu.lowerings.canonical import Convolution, canonical

_MOST_DIMENSIONS = 2


def transposed_kernel_gradient(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Rule: a dilated input, with a kernel that has more places than the output."""
    convolution = canonical(lhs, rhs, **params)
    if convolution is None or not _is_kernel_gradient(convolution):
        return None
    given = params["dimension_numbers"]
    result = (given.out_spec[1], given.out_spec[0], *given.out_spec[2:])
    numbers = lax.ConvDimensionNumbers(given.rhs_spec, given.lhs_spec, result)

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        exchanged = lax.conv_general_dilated(
            rhs,
            lhs,
            convolution.strides,
            _padding(convolution),
            rhs_dilation=convolution.lhs_dilation,
            dimension_numbers=numbers,
            precision=convolution.precision,
        )
        return lax.rev(exchanged, numbers.out_spec[2:])

    return compute


def _is_kernel_gradient(convolution: Convolution) -> bool:
    *_, examples, _ = convolution.rhs
    return (
        convolution.rank <= _MOST_DIMENSIONS
        and examples > 1
        and convolution.feature_groups == convolution.batch_groups == 1
        and max(convolution.lhs_dilation, default=1) > 1
        and set(convolution.strides) == set(convolution.rhs_dilation) == {1}
        and math.prod(convolution.window) > math.prod(convolution.out[1:-1])
        and not convolution.is_empty
        and all(low >= 0 and high >= 0 for low, high in _padding(convolution))
    )


def _padding(convolution: Convolution) -> list[tuple[int, int]]:
    """What the exchanged operands need: where the input's first place met the kernel's last one, it still does."""
    places, images, windows = convolution.out[1:-1], convolution.lhs[1:-1], convolution.window
    found: list[tuple[int, int]] = []
    for out, image, window, dilation, (before, _) in zip(
        places, images, windows, convolution.lhs_dilation, convolution.padding, strict=True
    ):
        low = out - 1 - before
        found.append((low, out + (image - 1) * dilation - window - low))
    return found
