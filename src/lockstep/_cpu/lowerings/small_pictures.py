"""Convolutions over few places of many channels, as one matrix product.

The last stages of networks for large pictures see them on small ones: ResNet-18 convolves 2x2 places of 512 channels
with 3x3 kernels when its pictures have 64x64. XLA leaves its library for a naive loop as soon as the kernel is larger
than the picture along one dimension, margins not counted. And as soon as the kernel has more elements than the
pictures, what rearranges it costs more than what rearranges them.
"""

from __future__ import annotations

import functools
import math
import operator

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution
from lockstep._cpu.lowerings.windows import pad, tap_slice, taps

# Places of a kernel, each of which is a copy of the picture.
_MOST_TAPS = 128
# Multiplications below which XLA's naive loop is done before a product has begun.
_LEAST_WORK = 1 << 15
# Of a kernel with more elements than the pictures, which is the matrix of a product: see `large_kernel`.
_LEAST_OF_LARGE_MATRIX = 1 << 16
_MOST_PLACES_A_CHANNEL = 4


def small_picture(convolution: Convolution) -> Compute | None:
    """Rule: a convolution whose kernel is larger than its input, and its input's gradient."""
    # XLA's own against this (ms of CPU time, float32, 3x3, batch 32, 2-core EPYC): 2x2, 512 to 512: forward 383 and
    # 3.6, input gradient 383 and 4.6; 1x1, 512 to 512: 13.7 and 1.3, 15.9 and 2.0; 4x4, 256 to 512 with stride 2: input
    # gradient 154 and 2.1; 2x2, 64 to 64: 0.67 and 0.15; bfloat16, 128 to 128: 5.1 and 0.4. A kernel that is larger
    # only because it is dilated (4x4, dilation 2: 0.25 and 0.44) stays with the library, and so does one output.
    work = math.prod(convolution.out) * math.prod(convolution.rhs[:-1])
    is_small = (
        convolution.feature_groups == convolution.batch_groups == 1
        and any(places > size for places, size in zip(convolution.window, convolution.lhs[1:-1], strict=True))
        and 1 not in convolution.rhs[-2:]
        and math.prod(convolution.window) <= _MOST_TAPS
        and convolution.has_margins_only
        and work >= _LEAST_WORK
        and not convolution.is_empty
    )
    if not is_small:
        return None
    # A kernel that is read by its columns would have to be transposed for the one, a dilated picture is mostly zeros.
    can_scatter = set(convolution.strides) == {1}
    if can_scatter and (convolution.is_input_gradient or max(convolution.lhs_dilation) > 1):
        return functools.partial(_scatter, convolution)
    return functools.partial(_gather, convolution)


def large_kernel(convolution: Convolution) -> Compute | None:
    """Rule: a convolution whose kernel has more elements than its input, and its input's gradient."""
    # XLA transposes the kernel of an input's gradient, an element at a time from another line of the cache: 3x3x512x512
    # 4 ms alone, 10 in a step, where the product takes 4. oneDNN rearranges it for each piece of a convolution.
    #
    # As before (XLA's or oneDNN's) against this (ms, float32, 3x3, 2-core EPYC with AVX-512). Input gradients:
    # 16x3x3x512 with 512 kernels 12.8 and 3.9, 32x4x4x512 18.4 and 12.3, 8x7x7x512 17.7 and 9.6, 8x14x14x512 44 and
    # 37, 8x5x5x1024 with 1024 66 and 21, 16x8x8x256 with 256 6.4 and 6.0, 4x4x4x256 1.5 and 0.5; not taken: 8x14x14x256
    # with 256 9.1 and 9.7. Forward: 4x4x4x512 with 512 4.3 and 2.1, 8x7x7x512 10.3 and 9.6, 8x5x5x1024 with 1024 25 and
    # 20; not taken: 32x4x4x512 10.4 and 12.9, 16x6x6x256 with 256 3.1 and 3.8.
    inputs, outputs = convolution.rhs[-2:]
    places = math.prod(convolution.lhs[:-1])
    is_large = (
        convolution.dtype == jnp.float32
        and convolution.is_plain
        and not convolution.is_empty
        and is_large_matrix(inputs, outputs)
        and set(convolution.strides) == {1}
        and 1 < math.prod(convolution.window) <= _MOST_TAPS
        and convolution.has_margins_only
    )
    if not is_large:
        return None
    if convolution.is_input_gradient:
        can_pay = places <= _MOST_PLACES_A_CHANNEL * max(inputs, outputs)
        return functools.partial(_scatter, convolution) if can_pay else None
    return functools.partial(_gather, convolution) if places < max(inputs, outputs) else None


def is_large_matrix(inputs: int, outputs: int) -> bool:
    """Returns whether a kernel has so many channels that a matrix product with it runs at full speed."""
    return inputs * outputs >= _LEAST_OF_LARGE_MATRIX


def _gather(convolution: Convolution, image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Lays out what each window sees as a row, and multiplies once."""
    margins = [(low, high, d - 1) for (low, high), d in zip(convolution.padding, convolution.lhs_dilation, strict=True)]
    if set(convolution.lhs_dilation) == {1}:
        image = pad(image, ((0, 0), *convolution.padding, (0, 0)), 0)
    else:
        image = lax.pad(image, image.dtype.type(0), [(0, 0, 0), *margins, (0, 0, 0)])
    shape = (*convolution.out[:-1], image.shape[-1])
    strides, dilation = (1, *convolution.strides, 1), (1, *convolution.rhs_dilation, 1)
    slices = [tap_slice(image, (0, *tap, 0), strides, shape, dilation) for tap in taps(convolution.window)]
    rows = jnp.stack(slices, axis=-2).reshape(math.prod(shape[:-1]), -1)
    product = lax.dot(rows, kernel.reshape(-1, kernel.shape[-1]), precision=convolution.precision)
    return product.reshape(convolution.out)


def _scatter(convolution: Convolution, image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Multiplies each place of the input with all places of the kernel at once, and adds up what meets."""
    dtype = jnp.promote_types(image.dtype, jnp.float32)
    inputs, outputs = kernel.shape[-2:]
    # (places of the kernel, outputs, inputs): as the kernel of an input's gradient lies in memory. It arrives read
    # backwards and then transposed; XLA removes all of that if both are undone in the other order, and else copies it.
    space = tuple(range(convolution.rank))
    matrix = lax.rev(lax.transpose(kernel, (*space, convolution.rank + 1, convolution.rank)), space)
    columns = lax.dot_general(
        image.reshape(-1, inputs),
        matrix.reshape(-1, inputs),
        (((1,), (1,)), ((), ())),
        precision=convolution.precision,
        preferred_element_type=dtype,
    )
    columns = columns.reshape(*image.shape[:-1], -1, outputs)
    terms = (
        _shift(convolution, columns[..., number, :], tap) for number, tap in enumerate(_backwards(convolution.window))
    )
    return functools.reduce(operator.add, terms).astype(image.dtype)


def _backwards(window: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the places of a window in the order of the reversed kernel."""
    return [tuple(size - 1 - place for size, place in zip(window, tap, strict=True)) for tap in taps(window)]


def _shift(convolution: Convolution, term: jax.Array, tap: tuple[int, ...]) -> jax.Array:
    """Puts what one place of the kernel makes of an input where the output has it; the rest is zeros."""
    margins = [(0, 0, 0)]
    sizes = zip(
        convolution.lhs[1:-1],
        convolution.out[1:-1],
        convolution.lhs_dilation,
        convolution.rhs_dilation,
        convolution.padding,
        tap,
        strict=True,
    )
    for size, out, spread, dilation, (before, _), place in sizes:
        low = before - place * dilation
        margins.append((low, out - low - (size - 1) * spread - 1, spread - 1))
    return lax.pad(term, term.dtype.type(0), [*margins, (0, 0, 0)])
