"""Convolutions that oneDNN computes, in programs that XLA does not divide between devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import jax
import numpy as np
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution, batch_first
from lockstep._cpu.lowerings.covering_depthwise import covers_image
from lockstep._cpu.lowerings.depthwise import MOST_TAPS, is_quick_line
from lockstep._cpu.lowerings.kernel_gradients import large_kernel_gradient
from lockstep._cpu.lowerings.small_convolutions import is_cheap_sum
from lockstep._cpu.lowerings.small_pictures import large_kernel
from lockstep._cpu.onednn.calls import ConvolutionCall, Dtype, Kind, Sizes
from lockstep._cpu.onednn.custom_call import compute as compute_call
from lockstep._cpu.onednn.custom_call import compute_all
from lockstep._cpu.onednn.library import computes, has_avx512

# Below so many products a call, which is Python's and wakes threads, takes longer than XLA's own: 8x8x8x32 with 32
# kernels of 3x3 0.09 ms and 0.18. With groups XLA is slower: 8x6x6x960, one kernel of 3x3 for each, 0.38 and 0.21; and
# so are sums of shifted pictures (`depthwise`): 8x3x3x176 of 3x3 0.02 and 0.02, its input's gradient 0.06 and 0.02.
_LEAST_PRODUCTS, _LEAST_GROUPED_PRODUCTS, _LEAST_DEPTHWISE_PRODUCTS = 5_000_000, 1_000_000, 50_000
# Of float32, where XLA's kernels are good, without AVX-512: 8x32x32x16 with 16 kernels of 3x3 0.71 ms and 0.97 forward,
# 0.73 and 0.96 for the input's gradient, 1.09 and 1.12 for the kernel's; 8x14x14x32 with 128 2.6 and 2.3 (2-core EPYC
# with AVX2). With AVX-512 the first three are 0.24 and 0.17, 0.24 and 0.17, 0.37 and 0.15; 4x32x32x16, half of that,
# 0.13 and 0.10, 0.14 and 0.10, 0.33 and 0.09; but in a loop the first forward 0.33 and 0.39.
_LEAST_OF_GOOD_KERNELS = 25_000_000
# For these volumes XLA has naive loops (ms, float32, 2-core EPYC with AVX-512, XLA's and oneDNN's). Transposed, stride
# 2: 8x16x16x16x32 with one kernel of 4x4x4 2,600 and 6.5, 2x8x8x8x16 with 2 of 3x3x3 17 and 0.20. Kernels' gradients:
# 8x16x16x16x1 with 16 of 3x3x3 2.6 and 0.17, 4x12x12x12x8 with one, stride 2 1.3 and 0.04, 8x4x4x4x64 with 64 of 4x4x4,
# transposed 37 and 0.9, 1x6x6x6x16 with 16, stride 2 0.18 and 0.04.
_LEAST_PRODUCTS_WITH_HOLES, _LEAST_PRODUCTS_OF_VOLUME_KERNELS = 10_000, 100_000
# Places in each dimension of a kernel of one channel whose gradient oneDNN has a kernel of its own for (jit_dw).
_MOST_DEPTHWISE_TAPS = 3
_MOST_PRODUCTS_OF_MANY_TAPS = 2_000_000
_VOLUME = 3  # dimensions of space, the most that oneDNN knows
_LEAST_CHANNELS, _LEAST_CHANNELS_PRODUCT, _LARGE_PICTURE, _MANY_PLACES = 4, 512, 1024, 4096


def foreign_convolution(convolution: Convolution) -> Compute | None:
    """Rule: a convolution, the gradient of one by its input, or by its kernel, as a call of oneDNN."""
    call = forward_call(convolution)
    if call is not None:
        return partial(compute_call, call)
    call = kernel_gradient_call(convolution)
    return _input_gradient(convolution) if call is None else gradient_of_kernel(call)


def forward_call(convolution: Convolution) -> ConvolutionCall | None:
    """Returns the call for a convolution itself; `None` where it is a gradient, or oneDNN does not compute it."""
    if not _is_suitable(convolution) or _is_of_kernel(convolution) or _has_holes(convolution):
        return None
    if not convolution.has_margins_only or is_cheap_sum(convolution):
        return None
    call = ConvolutionCall(
        cast("Dtype", convolution.dtype.name),
        "forward",
        convolution.lhs,
        convolution.rhs,
        convolution.out,
        convolution.strides,
        convolution.rhs_dilation,
        convolution.padding,
        convolution.feature_groups,
    )
    return call if _is_worth(call) else None


def kernel_gradient_call(convolution: Convolution) -> ConvolutionCall | None:
    """Returns the call for a convolution that is the gradient of one by its kernel; `None` as for `forward_call`."""
    # That of a transposed convolution's kernel comes back with its operands exchanged.
    if not _is_suitable(convolution) or not _is_of_kernel(convolution) or _has_holes(convolution):
        return None
    inputs, *space, count = convolution.lhs
    *places, _, outputs = convolution.rhs
    *taps, _ = convolution.out[1:]
    return _gradient_call(
        convolution,
        "backward_weights",
        ((count, *space, inputs), (*taps, inputs // convolution.batch_groups, outputs), (count, *places, outputs)),
        (convolution.rhs_dilation, convolution.strides),
        [low for low, _ in convolution.padding],
        convolution.batch_groups,
    )


def gradient_of_kernel(call: ConvolutionCall) -> Compute:
    """Returns what computes the gradient of a kernel, given the operands of a canonical convolution."""
    # The transpositions of the canonical form are undone, and XLA removes both.
    return lambda lhs, rhs: _inputs_first(compute_call(call, *batch_first(lhs, rhs)))


def gradient_with_sum(call: ConvolutionCall) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Returns what computes the gradient of a kernel, and of a bias, by a call for the former that has a bias."""

    def compute(lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, jax.Array]:
        kernel, bias = compute_all(call, *batch_first(lhs, rhs))
        return _inputs_first(kernel), bias

    return compute


def _is_of_kernel(convolution: Convolution) -> bool:
    """Returns whether a convolution is as differentiation writes the gradient of another one's kernel."""
    # At most one of the two is more than 1: groups of the batch are those of a gradient of a kernel.
    if convolution.feature_groups != convolution.batch_groups:
        return convolution.batch_groups > 1
    # The channels of the images are its batch. A convolution whose kernel has more places than its output is none, if
    # its batch comes first: 16x20x20x64 with 64 of 9x9, stride 2, 2.8 as XLA's and 0.9, 32x6x6x128 with 128 of 5x5 0.9
    # and 0.65 (ms, float32, 2-core EPYC with AVX-512).
    if convolution.lhs_order[0] == 0:
        return False
    # The gradient of a kernel that is larger than the output, of which differentiation makes one. Of pictures oneDNN
    # takes as long either way; of volumes 8x8x10x9x32 with 32 of 5x5x5, stride 2, 0.5 and 20.
    return convolution.rank == _VOLUME or math.prod(convolution.window) > math.prod(convolution.out[1:-1])


def _has_holes(convolution: Convolution) -> bool:
    """Returns whether a convolution is as differentiation writes the gradient of the input of one with strides."""
    return set(convolution.lhs_dilation) != {1}


def _is_suitable(convolution: Convolution) -> bool:
    products = math.prod(convolution.out) * math.prod(convolution.window) * convolution.rhs[-2]
    products //= math.prod(convolution.lhs_dilation)
    return (
        computes(convolution.dtype.name)
        and 1 <= convolution.rank <= _VOLUME
        and not convolution.is_empty
        and products >= _least_products(convolution)
        and large_kernel(convolution) is None
        and large_kernel_gradient(convolution) is None
        and not is_quick_line(convolution)
        and not covers_image(convolution)
    )


def _least_products(convolution: Convolution) -> int:
    if convolution.rank == _VOLUME and _has_holes(convolution):
        return _LEAST_PRODUCTS_WITH_HOLES
    if convolution.rank == _VOLUME and _is_of_kernel(convolution):
        return _LEAST_PRODUCTS_OF_VOLUME_KERNELS
    if convolution.feature_groups == convolution.batch_groups == 1:
        return _LEAST_OF_GOOD_KERNELS if _is_good_for_xla(convolution) else _LEAST_PRODUCTS
    # The batch of a kernel's gradient are the input's channels.
    inputs = convolution.lhs[0] // convolution.batch_groups if _is_of_kernel(convolution) else convolution.rhs[-2]
    return _LEAST_DEPTHWISE_PRODUCTS if inputs == 1 else _LEAST_GROUPED_PRODUCTS


def _is_good_for_xla(convolution: Convolution) -> bool:
    """Returns whether XLA has good kernels: for float32 without strides, but no gradient of a many-channel kernel.

    With AVX-512 oneDNN's are better.
    """
    if has_avx512() or convolution.dtype != np.float32 or _has_holes(convolution) or set(convolution.strides) != {1}:
        return False
    return not _is_of_kernel(convolution) or convolution.lhs[0] * convolution.rhs[-1] < _LEAST_CHANNELS_PRODUCT


def _is_worth(call: ConvolutionCall) -> bool:
    """Returns whether oneDNN is faster than XLA's own and lockstep's other rules."""
    # (ms, float32, 2-core Xeon, busy: XLA's, or that of another rule, and oneDNN's.) 1x1 is a matrix product:
    # 16x48x48x32 with 192 kernels 1.5 and 1.9; 32x16x16x64 with 128, stride 2, the kernel's gradient 0.46 and 2.5. A
    # kernel as large as the picture: 32x2x2x512 with 512 of 3x3, the input's gradient 5.5 and 20; 8x3x3x768 13.7 and
    # 17.9. Few channels: 128x28x28x32 with 1 of 3x3 1.9 and 3.1, 16x96x96x32 with 3 7.1 and 10.1. Kernels' gradients:
    # 64x28x28x1 with 32 of 3x3 0.67 and 0.91, 64x16x16x8 with 8 0.39 and 1.5, 16x17x17x17 with 17 0.66 and 4.6, but
    # 32x32x32x16 with 16 2.8 and 2.6, 32x64x64x8 with 16 12.1 and 1.9. Of volumes XLA's loops are slower, whatever the
    # kernel covers: 8x8x10x9x32 with 32 of 5x5x5, dilated, 118 and 1.3.
    taps, space = call.kernel[:-2], call.source[1:-1]
    inputs, outputs = call.source[-1], call.output[-1]
    covers = any(size <= (t - 1) * d + 1 and t > 1 for size, t, d in zip(space, taps, call.dilation, strict=True))
    is_depthwise = call.groups > 1 and call.kernel[-2] == 1
    if math.prod(taps) == 1 or (covers and not is_depthwise and len(space) < _VOLUME):
        return False
    if call.kind == "backward_weights":
        if call.groups > 1:
            return is_depthwise and _is_worth_of_depthwise_kernel(call)
        if len(space) == 1:
            return _is_worth_of_line_kernel(call)
        if len(space) == _VOLUME:
            return True
        is_large = inputs * outputs >= _LEAST_CHANNELS_PRODUCT or math.prod(space) >= _LARGE_PICTURE
        return inputs > 1 and is_large
    # Kernels of many places with strides, the input's gradient: 4x28x28x64 of 9x9 1.2 and 3.9 (2-core EPYC, AVX-512).
    if call.kind == "backward_data" and is_depthwise and math.prod(taps) > MOST_TAPS and set(call.strides) != {1}:
        return False
    return _least_channels(call) <= (outputs if call.kind == "forward" else inputs)


def _least_channels(call: ConvolutionCall) -> int:
    """Returns for how many channels of the result oneDNN is faster, except for a kernel's gradient."""
    if len(call.strides) < _VOLUME:
        return _LEAST_CHANNELS
    # Of volumes, as above: the gradient of the input of 8x16x16x16x2, 8 kernels of 5x5x5, 34 and 2.1; of one channel
    # `one_output` is faster, 1.9 and 3.4, but has nothing for strides: see `_LEAST_PRODUCTS_WITH_HOLES`.
    return 1 if call.kind == "backward_data" and set(call.strides) != {1} else 2


def _is_worth_of_line_kernel(call: ConvolutionCall) -> bool:
    """Returns whether oneDNN is to compute the gradient of a kernel that moves along a line.

    Of many places (ms, float32, XLA's and oneDNN's, 2-core Xeon with AVX-512): 64x256x64 with 64 of 3 10.2 and 4.7,
    16x512x256 with 256 38 and 28, 128x50x32 with 32 1.4 and 0.9; but 64x20x64 with 64 0.53 and 0.79, 32x200x8 with 32
    of 5 0.45 and 0.67. With AVX2 (EPYC) 32x256x128 with 128 of 3 9.8 and 17.7, 64x100x64 with 64 of 7 5.2 and 7.9.
    """
    places, channels = math.prod(call.source[:-1]), call.source[-1] * call.output[-1]
    return has_avx512() and places >= _MANY_PLACES and channels >= _LEAST_CHANNELS_PRODUCT


def _is_worth_of_depthwise_kernel(call: ConvolutionCall) -> bool:
    """Returns whether oneDNN is to compute the gradient of a depthwise kernel, and not `depthwise_kernel_gradient`.

    Of 3x3 (ms, float32, 2 cores of an EPYC with AVX-512, the rule's and oneDNN's): 16x112x112x32 9.0 and 2.1,
    16x28x28x192 3.4 and 1.0, 8x14x14x480 0.8 and 0.13, 64x28x28x4 0.26 and 0.15, 16x113x113x96 with stride 2 37 and
    2.8; with AVX2 8.7 and 3.6, 3.1 and 0.6, 0.8 and 0.2, 0.29 and 0.09, 34 and 4.5. On smaller pictures than the kernel
    it is slower: 16x2x2x256 0.05 and 0.15. So are larger kernels: 5x5 over 8x28x28x88 0.7 and 2.2. But the rule's
    program takes 0.3 to 1 s to compile, and XLA's time for it grows with the square of how many there are (a
    NASNetMobile's step 146 s): small ones, 5x5 over 8x6x6x88 0.14 and 0.13, 7x7 0.16 and 0.22, do not pay it back. It
    has none for the largest kernels: 9x9 over 16x16x16x96 takes XLA 21 and oneDNN 1.8. Over lines it compiles in half
    the time, and is faster for all kernels but the smallest: 16x100x128 with 3 places 0.23 and 0.07, 9 0.33 and 0.66.
    """
    *taps, _, outputs = call.kernel
    if call.groups != outputs or len(taps) == _VOLUME or set(call.dilation) != {1}:
        return False
    if max(taps) <= _MOST_DEPTHWISE_TAPS:
        return all(size >= t for size, t in zip(call.source[1:-1], taps, strict=True))
    if len(taps) == 1:
        return False
    return math.prod(call.output) * math.prod(taps) <= _MOST_PRODUCTS_OF_MANY_TAPS or math.prod(taps) > MOST_TAPS


def _input_gradient(convolution: Convolution) -> Compute | None:
    """Returns a convolution of an input with holes as the gradient of one with strides."""
    if not _is_suitable(convolution) or _is_of_kernel(convolution) or not _has_holes(convolution):
        return None
    if set(convolution.strides) != {1}:
        return None
    *taps, inputs, outputs = convolution.rhs
    dilation = convolution.rhs_dilation
    call = _gradient_call(
        convolution,
        "backward_data",
        (convolution.out, (*taps, outputs, inputs), convolution.lhs),
        (convolution.lhs_dilation, dilation),
        # What the convolution was padded with whose gradient this is.
        [(t - 1) * d - low for t, d, (low, _) in zip(taps, dilation, convolution.padding, strict=True)],
    )
    if call is None:
        return None
    rank = convolution.rank

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        kernel = lax.transpose(lax.rev(rhs, range(rank)), (*range(rank), rank + 1, rank))
        return compute_call(call, lhs, kernel)

    return compute


def _inputs_first(kernel: jax.Array) -> jax.Array:
    """Returns the gradient of a kernel as the canonical convolution has it: channels of the input are its batch."""
    rank = kernel.ndim - 2
    return lax.transpose(kernel, (rank, *range(rank), rank + 1))


def _gradient_call(
    convolution: Convolution,
    kind: Kind,
    shapes: tuple[Sizes, Sizes, Sizes],
    window: tuple[Sizes, Sizes],
    low: Sequence[int],
    groups: int = 1,
) -> ConvolutionCall | None:
    """Returns the call for a gradient; `None` where oneDNN does not have it, or is slower.

    Args:
        convolution: As which differentiation writes the gradient.
        kind: Of what it is the gradient.
        shapes: Of the input, the kernel and the output whose convolution is differentiated.
        window: Strides and dilation of that.
        low: Its padding before each dimension of space.
        groups: Its groups of channels.
    """
    source, kernel, output = shapes
    strides, dilation = window
    # What the kernel's last place sees of the input ends where the last window does.
    high = [
        (places - 1) * stride + (taps - 1) * distance + 1 - before - size
        for places, stride, taps, distance, before, size in zip(
            output[1:-1], strides, kernel[:-2], dilation, low, source[1:-1], strict=True
        )
    ]
    # oneDNN takes no window that ends before a whole stride of the input is left.
    is_padding = min(low) >= 0 and all(h > -s for h, s in zip(high, strides, strict=True))
    if convolution.feature_groups != 1 or not is_padding:
        return None
    dtype = cast("Dtype", convolution.dtype.name)
    padding = tuple(zip(low, high, strict=True))
    call = ConvolutionCall(dtype, kind, source, kernel, output, strides, dilation, padding, groups)
    return call if _is_worth(call) else None
