"""Depthwise convolutions whose kernels are as large as their images, and their gradients: products without a window.

Along each dimension of space the kernel covers the image, or has one place: the spatial filter of an EEGNet, the last
layer of a MobileFaceNet.

As sums over shifted images or as oneDNN's, and so (ms, float32, 2-core EPYC with AVX-512): the gradient by the images
for 32x32x256x8 and a kernel of 32x1, 2 outputs each, 26 and 0.4, where all but one place of the kernel meet padding;
for 16x7x7x512 and 7x7 by the images 0.19 and 0.08, by the kernel 2.9 and 0.4.
"""

from __future__ import annotations

from enum import Enum, auto

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution, batch_first
from lockstep._cpu.lowerings.depthwise import MOST_PER_GROUP, is_depthwise


class _Kind(Enum):
    """How image and kernel meet along a dimension of space."""

    KERNEL_OF_ONE = auto()  # The kernel has one place: as many outputs as the image has places.
    SAME = auto()  # Both have the same places: one output.
    IMAGE_OF_ONE = auto()  # The image has one place, within padding: each output sees it by another place.


def covering_depthwise(convolution: Convolution) -> Compute | None:
    """Rule: as many groups as channels, of one input or one output each; also the gradient by the images."""
    if convolution.feature_groups == 1 or not covers_image(convolution):
        return None
    inputs, outputs = convolution.per_group
    summed = _covered(convolution)

    def compute(image: jax.Array, kernel: jax.Array) -> jax.Array:
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        image, kernel = image.astype(dtype), _turn(convolution, kernel.astype(dtype))
        results = [
            sum(image[..., i::inputs] * kernel[..., i, o::outputs] for i in range(inputs)) for o in range(outputs)
        ]
        whole = jnp.stack(results, axis=-1).sum(axis=summed)
        return whole.reshape(convolution.out).astype(convolution.dtype)

    return compute


def covering_depthwise_kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: the gradient by the kernel, as differentiation writes it: with as many batch groups as channels."""
    if convolution.batch_groups == 1 or not covers_image(convolution):
        return None
    many = convolution.rhs[-1] // convolution.batch_groups
    summed = [0, *_covered(convolution)]

    def compute(image: jax.Array, gradient: jax.Array) -> jax.Array:
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        image, gradient = (array.astype(dtype) for array in batch_first(image, gradient))
        results = [(image * gradient[..., m::many]).sum(axis=summed) for m in range(many)]
        return jnp.stack(results, axis=-1).reshape(convolution.out).astype(convolution.dtype)

    return compute


def covers_image(convolution: Convolution) -> bool:
    """Returns whether a convolution is one of these, or a gradient of one."""
    kinds = set(_kinds(convolution))
    if convolution.is_empty or not convolution.has_margins_only or None in kinds:
        return False
    if convolution.feature_groups > 1:
        return is_depthwise(convolution) and kinds != {_Kind.KERNEL_OF_ONE}
    groups = convolution.batch_groups
    is_of_kernel = groups > 1 and groups == convolution.lhs[0] and convolution.rhs[-1] // groups <= MOST_PER_GROUP
    # The gradient by a kernel of one place is a sum of products anyway.
    has_places = max(convolution.out[1:-1], default=1) > 1
    return is_of_kernel and has_places and _Kind.IMAGE_OF_ONE not in kinds


def _covered(convolution: Convolution) -> list[int]:
    """Returns the axes of images along which kernel and image have the same places."""
    return [axis + 1 for axis, kind in enumerate(_kinds(convolution)) if kind is _Kind.SAME]


def _kinds(convolution: Convolution) -> list[_Kind | None]:
    """Returns how image and kernel meet along each dimension; `None` where there is a window that moves."""
    return [_kind(convolution, axis) for axis in range(convolution.rank)]


def _kind(convolution: Convolution, axis: int) -> _Kind | None:
    size, taps, places = convolution.lhs[axis + 1], convolution.window[axis], convolution.out[axis + 1]
    stride, distance = convolution.strides[axis], convolution.rhs_dilation[axis]
    is_as_given = convolution.padding[axis] == (0, 0) and convolution.lhs_dilation[axis] == 1
    if taps == stride == 1 and is_as_given:
        return _Kind.KERNEL_OF_ONE
    if size == taps and places == distance == 1 and is_as_given:
        return _Kind.SAME
    return _Kind.IMAGE_OF_ONE if size == stride == distance == 1 else None


def _turn(convolution: Convolution, kernel: jax.Array) -> jax.Array:
    """Returns the places of the kernel in the order of the outputs that see an image of one place by them."""
    turned = [axis for axis, kind in enumerate(_kinds(convolution)) if kind is _Kind.IMAGE_OF_ONE]
    margins = [(0, 0, 0)] * kernel.ndim
    for axis in turned:
        # Output `o` sees the image's place by the kernel's place `low - o`.
        low = convolution.padding[axis][0]
        margins[axis] = (low + 1 - kernel.shape[axis], convolution.out[axis + 1] - 1 - low, 0)
    return lax.pad(lax.rev(kernel, turned), kernel.dtype.type(0), margins)
