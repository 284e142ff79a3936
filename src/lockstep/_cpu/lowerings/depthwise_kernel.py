"""Kernel gradients of depthwise convolutions: block after block of rows, small enough to stay in the cache.

Automatic differentiation writes them as a convolution with as many batch groups as channels. XLA's CPU compiler
computes each channel with each (144x3x3x144 for 144 channels, in its optimised program) and keeps the diagonal.

Here each place of the kernel is a sum over all pairs of a shifted image and the output's gradient, channel by channel.
The rows of a block are added up by a sum written out, and what remains (one row for each place) by a reduction. Nine
passes over a block are cheap only while it is in the cache: prototypes took 144 ms for nine passes over the whole of
16x56x56x144, 26 ms block by block (the fastest of 11 in one run, float32, 2-core EPYC).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.canonical import Convolution, canonical
from lockstep._cpu.lowerings.windows import taps

_MOST_TAPS = 64
# Bytes of the output's gradient in a block, and rows whose products are written out as one sum.
_BLOCK = 128 * 1024
_MOST_ROWS = 8


def depthwise_kernel_gradient(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Rule: as many batch groups as the batch has rows, which are the channels of a depthwise convolution's input."""
    convolution = canonical(lhs, rhs, **params)
    if convolution is None or not _is_gradient(convolution):
        return None

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        image, gradient = convolution.enter(lhs, rhs)
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        rank = convolution.rank
        image = lax.transpose(image, (rank + 1, *range(1, rank + 1), 0)).astype(dtype)
        gradient = lax.transpose(gradient, (rank, *range(rank), rank + 1)).astype(dtype)
        return convolution.leave(_gradient(convolution, image, gradient)[None].astype(lhs.dtype))

    return compute


def _is_gradient(convolution: Convolution) -> bool:
    groups = convolution.batch_groups
    return (
        convolution.rank in (1, 2)
        and groups > 1
        and groups == convolution.lhs[0]
        and convolution.feature_groups == 1
        and set(convolution.lhs_dilation) <= {1}
        and math.prod(convolution.out[1:-1]) <= _MOST_TAPS
        and convolution.rhs[-1] // groups <= _MOST_TAPS
        and not convolution.is_empty
    )


@dataclass(frozen=True)
class _Blocks:
    """How the output's gradient is divided into blocks.

    Attributes:
        images: Images in a block; more than one only if all of their rows are in it.
        rows: Rows of each image.
        per_image: Blocks over the rows of one image, the last one filled with zeros.
        count: Blocks in all.
    """

    images: int
    rows: int
    per_image: int
    count: int


def _blocks(shape: tuple[int, ...], itemsize: int) -> _Blocks:
    examples, height, *row = shape
    most = max(1, min(_MOST_ROWS, _BLOCK // (math.prod(row) * itemsize)))
    per_image = -(-height // most)
    rows = -(-height // per_image)
    images = next(k for k in range(max(1, min(examples, most // height)), 0, -1) if examples % k == 0)
    return _Blocks(images, rows, per_image, examples // images * per_image)


@dataclass(frozen=True)
class _Window:
    """The kernel in two dimensions: its shape, and how far apart its places and its positions are."""

    shape: tuple[int, int]
    dilation: tuple[int, int]
    strides: tuple[int, int]


def _gradient(convolution: Convolution, image: jax.Array, gradient: jax.Array) -> jax.Array:
    """Returns (*taps, outputs) for an image (n, *space, groups) and a gradient (n, *places, outputs)."""
    groups = convolution.batch_groups
    many = gradient.shape[-1] // groups
    window, padding = _window(convolution)
    if convolution.rank == 1:
        image, gradient = image[:, None], gradient[:, None]
    of_each = [_of_one(window, padding, image, gradient[..., m::many]) for m in range(many)]
    whole = of_each[0] if many == 1 else jnp.stack(of_each, axis=-1)
    return whole.reshape(*convolution.out[1:-1], gradient.shape[-1])


def _window(convolution: Convolution) -> tuple[_Window, tuple[tuple[int, int], ...]]:
    """Returns the window and the padding; one dimension of space is the second of two."""
    lead = 2 - convolution.rank
    ones, none = (1,) * lead, ((0, 0),) * lead
    height, width = (*ones, *convolution.out[1:-1])
    # The gradient's own dilation is the convolution's stride, and the other way round.
    down, across = (*ones, *convolution.strides)
    below, beside = (*ones, *convolution.rhs_dilation)
    return _Window((height, width), (down, across), (below, beside)), (*none, *convolution.padding)


def _of_one(window: _Window, padding: Any, image: jax.Array, gradient: jax.Array) -> jax.Array:
    """Returns (taps, groups) for one output of each group."""
    blocks = _blocks(gradient.shape, gradient.dtype.itemsize)
    height, width = (_reach(window, axis, size) for axis, size in ((0, blocks.rows), (1, gradient.shape[2])))
    zero = image.dtype.type(0)
    top, left = padding[0][0], padding[1][0]
    needed = (blocks.per_image - 1) * blocks.rows * window.strides[0] + height
    bottom, right = needed - top - image.shape[1], width - left - image.shape[2]
    image = lax.pad(image, zero, [(0, 0, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0)])
    missing = blocks.per_image * blocks.rows - gradient.shape[1]
    gradient = lax.pad(gradient, zero, [(0, 0, 0), (0, missing, 0), (0, 0, 0), (0, 0, 0)])
    sums = _summed(window, blocks, height, image, gradient)
    return jnp.stack([row.sum(axis=0) for row in sums])


def _reach(window: _Window, axis: int, places: int) -> int:
    """Returns how much of the image `places` positions of the window see."""
    return (places - 1) * window.strides[axis] + (window.shape[axis] - 1) * window.dilation[axis] + 1


def _summed(window: _Window, blocks: _Blocks, height: int, image: jax.Array, gradient: jax.Array) -> list[jax.Array]:
    """Returns for each tap a row (width, groups): the sum over all images and rows."""
    rows = gradient.shape[2:]
    zeros = [jnp.zeros(rows, gradient.dtype)] * math.prod(window.shape)
    if blocks.count == 1:
        return _with_block(window, image, gradient, zeros)

    def step(number: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
        first, block = number // blocks.per_image * blocks.images, number % blocks.per_image * blocks.rows
        some = lax.dynamic_slice(gradient, (first, block, 0, 0), (blocks.images, blocks.rows, *rows))
        start = (first, block * window.strides[0], 0, 0)
        seen = lax.dynamic_slice(image, start, (blocks.images, height, *image.shape[2:]))
        # Always true, but it keeps XLA from fusing the slices into the sums. Fused, the block's number is loaded anew
        # for every element (seen in the optimised LLVM IR), and LLVM uses no vector instructions.
        return lax.cond(number >= 0, lambda *operands: _with_block(window, *operands), _without, seen, some, sums)

    return lax.fori_loop(0, blocks.count, step, zeros)


def _with_block(window: _Window, image: jax.Array, gradient: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
    images, rows, width, _ = gradient.shape
    (down, across), (step_down, step_across) = window.dilation, window.strides
    found: list[jax.Array] = []
    for total, (i, j) in zip(sums, taps(window.shape), strict=True):
        columns = slice(j * across, j * across + (width - 1) * step_across + 1, step_across)
        for n in range(images):
            for row in range(rows):
                total = total + image[n, i * down + row * step_down, columns] * gradient[n, row]
        found.append(total)
    return found


def _without(_image: jax.Array, _gradient: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
    return sums
