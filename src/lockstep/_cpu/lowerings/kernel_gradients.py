"""Kernel gradients of convolutions without groups: as matrix products, or with the operands exchanged.

Automatic differentiation writes a kernel's gradient as a convolution in which the input's channels are the batch, the
batch is summed over, and the output's gradient is the kernel: as large as the image, with as many outputs as the kernel
has places.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution, batch_first
from lockstep._cpu.lowerings.small_convolutions import LEAST_INPUTS, MOST_TAPS
from lockstep._cpu.lowerings.small_pictures import is_large_matrix
from lockstep._cpu.lowerings.windows import pad, tap_slice, taps


def kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the gradient of a small kernel over images with few channels, as a matrix product."""
    # For each place of the kernel the image is laid out as a row of the left matrix; the output's gradient is the right
    # one.
    #
    # XLA's own, canonical, against this (ms, float32, 2-core EPYC, 2 threads). 3x3 over 64x28x28x1: 16 kernels 2.5 and
    # 0.84, 32 kernels 1.6 and 0.57, 64 kernels 15 and 1.4; over 32x32x32x3: 32 kernels 1.5 and 0.93, 64 kernels 2.3 and
    # 1.8, 16 kernels 0.65 and 0.94 (not taken); 8x32x32x3, 32 kernels: bfloat16 0.38 and 0.48, float64 0.50 and 0.56;
    # 4x112x112x3, 32 kernels, stride 2: 0.50 and 0.66 (not taken). 5x5 over 64x28x28x1: 16 kernels 0.92 and 1.55 (not
    # taken).
    inputs, *places, outputs = convolution.out
    count = math.prod(places)
    rows = inputs * count
    # With more rows there is less to gain: strides, and types that are converted or twice as large, take it all.
    is_medium = rows <= 27 and outputs >= 32 and inputs > 1
    is_easy = convolution.dtype == "float32" and set(convolution.rhs_dilation) == {1}
    is_small = (
        convolution.is_plain
        and not convolution.is_empty
        and all(low >= 0 for low, _ in convolution.padding)
        and count > 1
        and math.prod(convolution.window) > 4 * count
        and (rows <= 9 or (is_medium and is_easy))
    )
    return _multiply_rows(convolution) if is_small else None


def large_kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the gradient of a kernel with many channels that sees few places, as a matrix product."""
    # XLA rearranges operands for its convolution; oneDNN's threads each write a gradient of half of the examples, in an
    # order of oneDNN's, and both are added and rearranged. Here what is rearranged are the images, which are small.
    #
    # As before (XLA's or oneDNN's) against this (ms, float32, 3x3, 2-core EPYC with AVX-512): 16x3x3x512 with 512
    # kernels 9.3 and 6.9, 32x4x4x512 22.0 and 13.4, 8x7x7x512 13.7 and 10.6, 4x4x4x512 8.7 and 1.9, 8x5x5x1024 with
    # 1024 68 and 39, 8x6x6x256 with 512 4.3 and 3.9. Not taken: 8x14x14x512 with 512 47 and 56, 16x8x8x256 with 256 6.4
    # and 7.2.
    inputs, *places, outputs = convolution.out
    is_large = (
        convolution.dtype == "float32"
        and convolution.is_plain
        and not convolution.is_empty
        # Differentiation makes the channels of the images the batch.
        and convolution.lhs_order[0] != 0
        and all(low >= 0 for low, _ in convolution.padding)
        and 1 < math.prod(places) <= MOST_TAPS
        and is_large_matrix(inputs, outputs)
        and math.prod(convolution.rhs[:-1]) <= max(inputs, outputs)
    )
    return _multiply_rows(convolution) if is_large else None


def kernel_gradient_with_sum(
    convolution: Convolution,
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]] | None:
    """Returns what computes what `kernel_gradient` does, and the sum of the output's gradient for each channel.

    `None` where that rule does not know better.
    """
    # One row more, of ones: the sum on its own read all of the output's gradient once more, 0.15 ms of 0.42 for 64
    # pictures of 26x26x32 (2-core EPYC with AVX-512).
    if kernel_gradient(convolution) is None:
        return None

    def compute(lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, jax.Array]:
        kernel, total = _row_products(convolution, lhs, rhs, has_sum=True)
        return kernel, total[0]

    return compute


def _multiply_rows(convolution: Convolution) -> Compute:
    """Returns what lays out the images as a row for each place of the kernel, and multiplies once."""
    return lambda lhs, rhs: _row_products(convolution, lhs, rhs, has_sum=False)[0]


def _row_products(
    convolution: Convolution, lhs: jax.Array, rhs: jax.Array, has_sum: bool
) -> tuple[jax.Array, jax.Array]:
    """Returns the gradient of a kernel, and with `has_sum` a row of sums of the output's gradient, else none."""
    inputs, *places, outputs = convolution.out
    rank = convolution.rank
    images = lax.transpose(lhs, (0, rank + 1, *range(1, rank + 1)))
    margins = ((0, 0), (0, 0), *((low, max(0, high)) for low, high in convolution.padding))
    images = pad(images, margins, 0)
    shape = (*images.shape[:2], *convolution.window)
    steps, dilation = (1, 1, *convolution.rhs_dilation), (1, 1, *convolution.strides)
    slices = [tap_slice(images, (0, 0, *tap), steps, shape, dilation) for tap in taps(tuple(places))]
    if has_sum:
        slices.append(jnp.ones((1, *shape[1:]), images.dtype))
    # (places * inputs, examples * area) by (examples * area, outputs).
    left = jnp.concatenate(slices).reshape(-1, math.prod(shape[1:]))
    right = lax.transpose(rhs, (rank, *range(rank), rank + 1)).reshape(-1, outputs)
    product = lax.dot(left, right, precision=convolution.precision)
    rows = math.prod(places) * inputs
    kernel = product[:rows].reshape(*places, inputs, outputs)
    return lax.transpose(kernel, (rank, *range(rank), rank + 1)), product[rows:]


def one_output_kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the gradient of a kernel with one output, as a matrix product with the output's gradient laid out."""
    # XLA transposes the images, which are the larger operand by the number of channels. The product reads them as they
    # lie: its other matrix has the output's gradient once for each place of the kernel.
    #
    # XLA's own against this (ms, float32, 2-core EPYC, 2 threads): 128x28x28x32, 3x3: 10.5 and 1.3; 64x24x24x64, 5x5:
    # 126 and 1.6; 64x28x28x6, 3x3: 0.8 and 0.4; 16x96x96x16, 3x3: 3.2 and 2.4, by oneDNN 3.4; 8x64x64x64, 3x3: 2.4 and
    # 0.5, by oneDNN 3.2; 32x14x14x128, 3x3: 1.9 and 0.25.
    inputs, *taps_shape, outputs = convolution.out
    count = math.prod(taps_shape)
    is_gradient = (
        convolution.is_plain
        and not convolution.is_empty
        and outputs == 1
        and inputs >= LEAST_INPUTS
        and 1 < count <= MOST_TAPS
        and math.prod(convolution.window) > 4 * count
        and set(convolution.strides) == set(convolution.rhs_dilation) == {1}
        and all(low >= 0 and high >= 0 for low, high in convolution.padding)
    )
    if not is_gradient:
        return None
    rank, space = convolution.rank, convolution.lhs[1:-1]
    sizes = list(zip(space, convolution.window, taps_shape, convolution.padding, strict=True))
    margins = [(max(0, t - 1 - low), max(0, size + low - window)) for size, window, t, (low, _) in sizes]
    # Where the slice for the first place of the kernel begins; for the next ones it begins earlier.
    first = [low + before for (_, _, _, (low, _)), (before, _) in zip(sizes, margins, strict=True)]

    def as_seen_from(tap: tuple[int, ...], gradient: jax.Array) -> jax.Array:
        """Returns for each place of the images what a place of the kernel makes of it."""
        starts = [begin - t for begin, t in zip(first, tap, strict=True)]
        limits = [start + size for start, size in zip(starts, space, strict=True)]
        return lax.slice(gradient, (0, *starts), (len(gradient), *limits))

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        gradient = lax.transpose(rhs, (rank, rank + 1, *range(rank)))[:, 0]
        gradient = pad(gradient, ((0, 0), *margins), 0)
        slices = [as_seen_from(tap, gradient) for tap in taps(tuple(taps_shape))]
        images = lax.transpose(lhs, (rank + 1, *range(1, rank + 1), 0)).reshape(-1, inputs)
        product = lax.dot(jnp.stack(slices).reshape(count, -1), images, precision=convolution.precision)
        return lax.transpose(product.reshape(*taps_shape, 1, inputs), (rank + 1, *range(rank), rank))

    return compute


def pointwise_kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the gradient of a 1x1 kernel, as one matrix product over all places of all images."""
    # XLA transposes both operands of the convolution; the matrix product reads both as they lie.
    #
    # XLA's own against this product (ms, medians of one run, float32, batch 16, 2-core EPYC, 2 threads): 112x112, 16 to
    # 96 channels 95 and 8; 56x56, 144 to 24, 21 and 4.1; 28x28, 192 to 32, 5.9 and 2.7; 14x14, 96 to 576, 5.7 and 2.5;
    # 7x7, 320 to 1280, 7.1 and 3.5.
    sizes = zip(convolution.window, convolution.rhs_dilation, convolution.lhs[1:-1], strict=True)
    sees_whole_image = (
        convolution.is_plain
        and math.prod(convolution.out[1:-1]) == 1
        and math.prod(convolution.window) > 1
        and all(low == 0 for low, _ in convolution.padding)
        and all((places - 1) * stride + 1 <= size for places, stride, size in sizes)
        and not convolution.is_empty
    )
    if not sees_whole_image:
        return None

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        inputs, *_, examples = convolution.lhs
        rank = convolution.rank
        # Back to batch first, channels last: the transpositions of the canonical form are undone, and XLA removes both.
        image, gradient = batch_first(lhs, rhs)
        shape = (examples, *convolution.window, inputs)
        image = tap_slice(image, (0,) * (rank + 2), (1, *convolution.rhs_dilation, 1), shape)
        operands = gradient.reshape(-1, convolution.rhs[-1]), image.reshape(-1, inputs)
        # In this order, as a dense layer's gradient: `products` knows for which sizes XLA should keep it.
        product = lax.dot_general(*operands, (((0,), (0,)), ((), ())), precision=convolution.precision)
        return product.T.reshape(convolution.out)

    return compute
