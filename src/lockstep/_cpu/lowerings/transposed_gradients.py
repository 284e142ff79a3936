"""Kernel gradients of transposed convolutions, as decoders, GANs and U-Nets have them: with the operands exchanged.

Automatic differentiation writes such a gradient as a convolution of the dilated input with the output's gradient as its
kernel. XLA exchanges the two, because that kernel is the larger one, and marks the other as read backwards; for that it
has a naive loop only. Exchanged here, with the small result reversed instead, it is the kernel gradient of an ordinary
convolution with strides, which all is fast for.
"""

from __future__ import annotations

import math
from typing import Any

import jax
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution, canonical
from lockstep._cpu.lowerings.foreign_convolutions import kernel_gradient_call

_PICTURE_DIMENSIONS = 2


def transposed_kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the kernel gradient of a transposed convolution, whatever computes the ordinary one."""
    # XLA's own against this (ms, float32, 2-core EPYC, 2 threads), stride 2: 64x7x7x32, 32 kernels of 3x3 11.8 and 2.1;
    # 64x14x14x32, 16 of 3x3 25 and 4.8; 16x32x32x64, 64 of 4x4 760 and 27; 32x14x14x64, 3 of 4x4 10.9 and 1.3;
    # 32x100x64, 64 of 4 31 and 1.9; alike in loops. It is not taken for volumes (2x8x8x8x16, 8 of 3x3x3: 2.2 and 3.8),
    # nor for a single image (1x8x8x16, 16 of 3x3: 0.1 and 0.2).
    if convolution.rank > _PICTURE_DIMENSIONS or convolution.rhs[-2] == 1 or not _is_gradient(convolution):
        return None
    return _exchange(convolution)


def foreign_transposed_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the same, also of volumes and of a single image, where oneDNN computes the ordinary one."""
    # XLA's own against this (ms, float32, 2-core EPYC with AVX-512), stride 2: 8x6x6x6x64, 32 kernels of 2x2x2 14.0 and
    # 0.24; 8x12x12x12x32, 16 of 2x2x2 31.5 and 0.36, in a loop 42 and 0.61; 2x4x4x4x128, 64 of 3x3x3 5.8 and 0.40.
    if not _is_gradient(convolution):
        return None
    lhs, rhs = (jax.ShapeDtypeStruct(shape, convolution.dtype) for shape in (convolution.rhs, convolution.lhs))
    exchanged = canonical(lhs, rhs, _exchanged_params(convolution))
    return None if exchanged is None or kernel_gradient_call(exchanged) is None else _exchange(convolution)


def _is_gradient(convolution: Convolution) -> bool:
    return (
        convolution.feature_groups == convolution.batch_groups == 1
        and max(convolution.lhs_dilation, default=1) > 1
        and set(convolution.strides) == set(convolution.rhs_dilation) == {1}
        and math.prod(convolution.window) > math.prod(convolution.out[1:-1])
        and not convolution.is_empty
        and all(low >= 0 and high >= 0 for low, high in _exchanged_padding(convolution))
    )


def _exchange(convolution: Convolution) -> Compute:
    params = _exchanged_params(convolution)

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        out = lax.conv_general_dilated(rhs, lhs, **params)
        return lax.rev(out, params["dimension_numbers"].out_spec[2:])

    return compute


def _exchanged_params(convolution: Convolution) -> dict[str, Any]:
    """Returns the arguments of `lax.conv_general_dilated` for the kernel as the input, and the input as the kernel."""
    given = convolution.numbers
    result = (given.out_spec[1], given.out_spec[0], *given.out_spec[2:])
    return {
        "window_strides": convolution.strides,
        "padding": tuple(_exchanged_padding(convolution)),
        "lhs_dilation": convolution.rhs_dilation,
        "rhs_dilation": convolution.lhs_dilation,
        "dimension_numbers": lax.ConvDimensionNumbers(given.rhs_spec, given.lhs_spec, result),
        "feature_group_count": 1,
        "batch_group_count": 1,
        "precision": convolution.precision,
        "preferred_element_type": None,
    }


def _exchanged_padding(convolution: Convolution) -> list[tuple[int, int]]:
    """Returns the padding with which the input's first place still meets the kernel's last one."""
    places, images, windows = convolution.out[1:-1], convolution.lhs[1:-1], convolution.window
    padding: list[tuple[int, int]] = []
    for out, image, window, dilation, (before, _) in zip(
        places, images, windows, convolution.lhs_dilation, convolution.padding, strict=True
    ):
        low = out - 1 - before
        padding.append((low, out + (image - 1) * dilation - window - low))
    return padding
