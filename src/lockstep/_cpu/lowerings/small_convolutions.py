"""Convolutions with little to sum over, or with few columns: as sums of shifted images, or as matrix products.

A convolution is a matrix product, which has almost nothing to sum over with one or three input channels, and a single
column with one output channel. XLA's kernels spend their time on rearranging then, and use little of a vector.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution
from lockstep._cpu.lowerings.windows import ISOLATE_ORIGINAL, isolate, pad, tap_slice, taps

_MOST_INPUTS = 4
# Terms in the sum for each output, and terms times outputs: what the grid showed to be faster.
_MOST_TERMS = 27
_MOST_KERNEL = 864
_MOST_KERNEL_OF_ONE = 576
_CHEAP_TERMS = 9
_MANY_OUTPUTS = 32
# Of convolutions into one channel, what the grid has: inputs, and places of a kernel.
LEAST_INPUTS = 6
MOST_TAPS = 27
_FEW_ROWS = 48


def few_inputs(convolution: Convolution) -> Compute | None:
    """Rule: a convolution of one to four input channels with a small kernel, as a sum over its places."""
    # The sum is one vector loop over the output channels.
    #
    # XLA's own against this (ms, float32, 2-core EPYC, 2 threads), stride 1 unless said otherwise: 64x28x28x1, 3x3: 6
    # kernels 3.8 and 0.26, 32 kernels 0.45 and 0.32, 64 kernels 2.2 and 0.8; 64x28x28x1, 5x5: 6 kernels 1.5 and 0.28,
    # 16 kernels 2.7 and 0.4, 32 kernels 0.75 and 1.1 (not taken); 32x32x32x3, 3x3: 6 kernels 2.2 and 0.32, 32 kernels
    # 2.8 and 1.05; 16x64x64x3, 3x3, stride 2, 32 kernels: 4.8 and 0.9.
    return sum_places(convolution) if _has_few_inputs(convolution) else None


def sum_places(convolution: Convolution, has_relu: bool = False) -> Callable[..., jax.Array]:
    """Returns what computes a convolution as a sum over its kernel's places, a bias if there is one, and a relu."""

    def total(image: jax.Array, kernel: jax.Array, *bias: jax.Array) -> jax.Array:
        result = sum(bias, _convolve(convolution, image, kernel))
        return lax.max(result, jnp.zeros_like(result)) if has_relu else result

    # XLA must not compute it where it is read. With the order of a Flatten, as one row for each picture, it takes no
    # vector instructions: a step of the multi-worker tutorial's network 24.9 ms, not 17.4 (2-core EPYC with AVX2).
    return lambda lhs, *others: isolate(total)(pad(lhs, ((0, 0), *convolution.padding, (0, 0)), 0), *others)


def is_cheap_sum(convolution: Convolution) -> bool:
    """Returns whether a sum over a kernel's places is faster than a call of oneDNN."""
    # With 32 kernels of 3x3, bias and relu over 64x28x28x1 1.2 ms as a call, 0.38 as a sum (2-core EPYC with AVX2).
    if convolution.dtype != jnp.float32:
        return False
    return _has_few_inputs(convolution) and _count_terms(convolution) <= _CHEAP_TERMS


def _has_few_inputs(convolution: Convolution) -> bool:
    *_, inputs, outputs = convolution.rhs
    terms = _count_terms(convolution)
    return (
        convolution.is_plain
        and 1 <= inputs <= _MOST_INPUTS
        and 1 < terms <= _MOST_TERMS
        and terms * outputs <= (_MOST_KERNEL if inputs > 1 else _MOST_KERNEL_OF_ONE)
        and outputs > 1
        # 1x28x28x1 with 32 kernels takes 0.05 ms, and 0.06 as a sum.
        and not (convolution.lhs[0] == inputs == 1 and outputs >= _MANY_OUTPUTS)
        and convolution.has_margins_only
        and 0 not in convolution.out
    )


def _count_terms(convolution: Convolution) -> int:
    """Returns how many products an output is the sum of."""
    return math.prod(convolution.rhs[:-1])


def _convolve(convolution: Convolution, image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolves a padded image; adds up in float32 at least, as XLA does."""
    result = image.dtype
    dtype = jnp.promote_types(result, jnp.float32)
    image, kernel = image.astype(dtype), kernel.astype(dtype)
    shape, strides = (*convolution.out[:-1], 1), (1, *convolution.strides, 1)
    terms = (
        tap_slice(image, (0, *tap, channel), strides, shape, (1, *convolution.rhs_dilation, 1))
        * kernel[(*tap, channel)]
        for tap in taps(convolution.window)
        for channel in range(image.shape[-1])
    )
    return lax.convert_element_type(functools.reduce(operator.add, terms), result)


def one_output(convolution: Convolution) -> Compute | None:
    """Rule: a convolution of stride 1 into one channel, as a matrix product and a sum of shifted results."""
    # It is what a decoder of images may end with, and the input gradient of a convolution of images with one channel.
    # Each input place first meets all places of the kernel.
    #
    # XLA's own against this (ms, float32, 2-core EPYC, 2 threads): 64x28x28x32, 3x3: 3.2 and 1.0, in a loop 7.7 and
    # 1.0; 64x24x24x64, 5x5: 10.8 and 2.4, in a loop 6.7 and 2.6; 64x28x28x6, 3x3: 3.5 and 0.6, in a loop 0.8 and 0.3;
    # 2x16x16x16x16, 3x3x3: 7.3 and 0.6. With three or four outputs it was slower as often as faster, and is not taken.
    *places, inputs, outputs = convolution.rhs
    is_small = (
        convolution.is_plain
        and outputs == 1
        and inputs >= LEAST_INPUTS
        and 1 < math.prod(places) <= MOST_TAPS
        and set(convolution.strides) == {1}
        and convolution.has_margins_only
        and not convolution.is_empty
    )
    if not is_small:
        return None

    def compute(image: jax.Array, kernel: jax.Array) -> jax.Array:
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        # Of two matrices: with the image as it is the product took half as long again.
        rows = (((1,), (1,)), ((), ()))
        operands = kernel.reshape(-1, inputs), image.reshape(-1, inputs)
        products = lax.dot_general(*operands, rows, convolution.precision, dtype).reshape(-1, *image.shape[:-1])
        products = pad(products, ((0, 0), (0, 0), *convolution.padding), 0)
        return isolate(partial(_sum_products, convolution))(products)[..., None].astype(image.dtype)

    return compute


def _sum_products(convolution: Convolution, products: jax.Array) -> jax.Array:
    """Adds (n, *space) slices of the products (places of the kernel, n, *space)."""
    shape, ones = (1, *convolution.out[:-1]), (1,) * (convolution.rank + 2)
    dilation = (1, 1, *convolution.rhs_dilation)
    terms = (
        tap_slice(products, (number, 0, *tap), ones, shape, dilation)
        for number, tap in enumerate(taps(convolution.window))
    )
    return functools.reduce(operator.add, terms)[0]


def pointwise(convolution: Convolution) -> Compute | None:
    """Rule: a convolution of stride 1 whose kernel has one place (1x1), as a matrix product."""
    # XLA's own, canonical, against this (ms, float32, batch 16, 2-core EPYC, 2 threads): 56x56, 64 to 256 channels:
    # forward 52.0 and 46.8, input gradient (the same operation) 48.5 and 19.1; 56x56, 64 to 64: 16.8 and 12.6, 6.8 and
    # 5.4; 7x7, 512 to 512: 5.2 and 4.2, 5.8 and 4.5. 14x14, 64 to 128, batch 4: float64 0.34 and 0.24, bfloat16 0.26
    # and 0.24.
    is_product = (
        convolution.is_plain
        and set(convolution.window) <= {1}
        and set(convolution.strides) <= {1}
        and not any(low or high for low, high in convolution.padding)
        and 0 not in (*convolution.lhs, *convolution.rhs)
    )
    if not is_product:
        return None
    # An input gradient, whose kernel is read by its columns. XLA's naive loop is quick with few rows: 32x1x1, 256 to
    # 1024 took 0.64 ms in a loop as a product, and 0.34 as it is written, in a branch.
    if convolution.is_input_gradient and math.prod(convolution.lhs[:-1]) <= _FEW_ROWS:
        return ISOLATE_ORIGINAL

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        inputs, outputs = rhs.shape[-2:]
        product = lax.dot(lhs.reshape(-1, inputs), rhs.reshape(inputs, outputs), precision=convolution.precision)
        return product.reshape(convolution.out)

    return compute
