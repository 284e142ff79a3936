"""Depthwise convolutions, their input gradients, and their kernel gradients.

The first two are sums of shifted images, each times one row of the kernel.

The sum is one vector loop over the channels, and all threads take part. The input gradient of a convolution with
strides is a convolution of a dilated image; each of its phases is a sum that skips the zeros.

The input gradient without strides, as jax writes it, XLA computes quickly in the body of a loop; in the program's entry
computation it brings it into another form first. So it is put into a branch, where XLA leaves it as it is: 4x56x56x144
takes 0.98 ms then; 48 in the entry computation, and 1.6 as a sum.

Forward, XLA's own against a prototype of this in the same run (ms, medians, float32, batch 16, 3x3, 2-core EPYC, 2
threads): 112x112x32 168 and 6.0; 113x113x96, stride 2, 188 and 47; 56x56x144 207 and 23; 28x28x192 65 and 3.1;
14x14x384 32 and 1.0; 7x7x960 22 and 0.9.

Automatic differentiation writes a kernel gradient as a convolution with as many batch groups as channels. XLA's CPU
compiler computes each channel with each (144x3x3x144 for 144 channels, in its optimised program), and keeps the
diagonal.

Here each place of the kernel is a sum over all pairs of a shifted image and the output's gradient, channel by channel.
The rows of a block are added up by a sum written out, and what remains (one row for each place) by a reduction. Nine
passes over a block are cheap only while it is in the cache: prototypes took 144 ms for nine passes over the whole of
16x56x56x144, 26 ms block by block (the fastest of 11 in one run, float32, 2-core EPYC).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import Compute, Convolution, batch_first
from lockstep._cpu.lowerings.windows import ISOLATE_ORIGINAL, Shape, pad, taps

# Terms that each output may be the sum of (7x7 kernels have 49), and inputs or outputs that a group may have.
_MOST_TERMS = 64
MOST_PER_GROUP = 8
# Terms of XLA's naive loop, and groups that are few.
_MOST_NAIVE_TERMS = 9
_FEW_GROUPS = 8
# Places of a kernel whose sums are written out at a time, and of all: of 9x9 over 16x16x16x96 2.0 s to compile.
MOST_TAPS, _MOST_TAPS_IN_ALL = 64, 256
# Bytes of the output's gradient in a block, and rows whose products are written out as one sum.
_BLOCK = 128 * 1024
_MOST_ROWS = 8


def depthwise(convolution: Convolution) -> Compute | None:
    """Rule: as many groups as channels, of one input or one output each."""
    if not is_depthwise(convolution) or not _has_plain_steps(convolution):
        return None
    inputs, outputs = convolution.per_group
    if _is_quick_as_written(convolution):
        return ISOLATE_ORIGINAL
    if math.prod(convolution.window) * inputs > _MOST_TERMS:
        return None

    def compute(image: jax.Array, kernel: jax.Array) -> jax.Array:
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        images = [image[..., i::inputs].astype(dtype) for i in range(inputs)]
        kernel = kernel.astype(dtype)
        # Each group's inputs with each of its kernels; one of the two is one.
        results = [_convolve(convolution, images, kernel[..., o::outputs]) for o in range(outputs)]
        total = results[0] if outputs == 1 else jnp.stack(results, axis=-1).reshape(convolution.out)
        return total.astype(convolution.dtype)

    return compute


def is_quick_line(convolution: Convolution) -> bool:
    """Returns whether XLA's naive loop is quick for a depthwise convolution over lines, of few places.

    It is as quick as oneDNN in the program's entry computation, and quicker in a loop: the input's gradient for
    16x256x64 and 5 places 0.10 and 0.14 ms (float32, 2-core EPYC with AVX-512).
    """
    is_short = convolution.rank == 1 and math.prod(convolution.window) <= _MOST_NAIVE_TERMS
    is_sum = is_short and is_depthwise(convolution) and _has_plain_steps(convolution)
    return is_sum and _is_quick_as_written(convolution)


def is_depthwise(convolution: Convolution) -> bool:
    """Returns whether a convolution has groups of one input or one output each, and of few others."""
    inputs, outputs = convolution.per_group
    return (
        convolution.feature_groups > 1
        and convolution.batch_groups == 1
        and 1 in (inputs, outputs)
        and inputs * outputs <= MOST_PER_GROUP
        and not convolution.is_empty
    )


def _has_plain_steps(convolution: Convolution) -> bool:
    """Returns whether the window, or the input, has steps of one along each dimension."""
    return all(1 in pair for pair in zip(convolution.strides, convolution.lhs_dilation, strict=True))


def _is_quick_as_written(convolution: Convolution) -> bool:
    """Returns whether XLA's naive loop is quick: over channels that lie side by side, for an input's gradient."""
    # With strides or large windows the sum is quicker, except for windows that are too large for it. With few channels
    # it is not: there one vector holds few of them.
    per_group = math.prod(convolution.per_group)
    steps, terms = {*convolution.strides, *convolution.lhs_dilation}, math.prod(convolution.window)
    return (
        convolution.dtype.name in ("float32", "float16")
        and not convolution.is_canonical
        and convolution.lhs_order == tuple(range(convolution.rank + 2))
        and (terms > _MOST_TERMS or (terms <= _MOST_NAIVE_TERMS and (steps == {1} or convolution.rank == 1)))
        and (per_group == 1 or convolution.feature_groups < _FEW_GROUPS)
    )


@dataclass(frozen=True)
class _Axis:
    """Indices of one spatial dimension: output `q * dilation + phase` sees input `q * stride + offset`.

    Attributes:
        size: The input's size.
        stride: Of the window; 1 if the input is dilated.
        places: How many places each phase has.
        phases: For each phase the pairs (tap, offset).
    """

    size: int
    stride: int
    places: int
    phases: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def offsets(self) -> list[int]:
        """The offsets of all phases, and 0, so that there is one."""
        return [0, *(offset for phase in self.phases for _, offset in phase)]

    @property
    def low(self) -> int:
        """The number of zeros needed before the input."""
        return max(0, -min(self.offsets))

    @property
    def high(self) -> int:
        """The number of zeros needed after it."""
        return max(0, max(self.offsets) + (self.places - 1) * self.stride + 1 - self.size)


def _axis(convolution: Convolution, axis: int) -> _Axis:
    dilation, low = convolution.lhs_dilation[axis], convolution.padding[axis][0]
    reach = [tap * convolution.rhs_dilation[axis] - low for tap in range(convolution.window[axis])]
    phases = tuple(
        tuple((tap, (phase + r) // dilation) for tap, r in enumerate(reach) if (phase + r) % dilation == 0)
        for phase in range(dilation)
    )
    places = -(-convolution.out[axis + 1] // dilation)
    return _Axis(convolution.lhs[axis + 1], convolution.strides[axis], places, phases)


def _convolve(convolution: Convolution, images: list[jax.Array], kernel: jax.Array) -> jax.Array:
    """Computes one output of each group, phase by phase, and puts the phases together."""
    axes = [_axis(convolution, axis) for axis in range(convolution.rank)]
    margins = [(0, 0), *((a.low, a.high) for a in axes), (0, 0)]
    images = [pad(image, margins, 0) for image in images]
    phases = {
        phase: _sum_phase(axes, phase, images, kernel)
        for phase in itertools.product(*(range(len(a.phases)) for a in axes))
    }
    whole = _interleave(phases, convolution.lhs_dilation)
    return lax.slice(whole, [0] * whole.ndim, (*convolution.out[:-1], whole.shape[-1]))


def _sum_phase(axes: list[_Axis], phase: Shape, images: list[jax.Array], kernel: jax.Array) -> jax.Array:
    """Adds up the shifted images of one phase."""
    batch, channels = images[0].shape[0], images[0].shape[-1]
    places = [a.places for a in axes]
    strides = [a.stride for a in axes]
    total = None
    for pairs in itertools.product(*(a.phases[p] for a, p in zip(axes, phase, strict=True))):
        starts = [offset + a.low for (_, offset), a in zip(pairs, axes, strict=True)]
        limits = [s + (n - 1) * stride + 1 for s, n, stride in zip(starts, places, strides, strict=True)]
        for number, image in enumerate(images):
            window = lax.slice(image, (0, *starts, 0), (batch, *limits, channels), (1, *strides, 1))
            term = window * kernel[(*(tap for tap, _ in pairs), number)]
            total = term if total is None else total + term
    return jnp.zeros((batch, *places, channels), images[0].dtype) if total is None else total


def _interleave(phases: dict[Shape, jax.Array], dilation: Shape) -> jax.Array:
    """Puts phases in turn along each dimension."""
    # As one stack that is then transposed: 34 ms for the input gradient of 16x113x113x96, stride 2, where concatenating
    # the phases dimension by dimension took 269 (the fastest of 9, float32, 2-core EPYC).
    if len(phases) == 1:
        return next(iter(phases.values()))
    rank = len(dilation)
    whole = jnp.stack([phases[phase] for phase in sorted(phases)])
    batch, *places, channels = whole.shape[1:]
    whole = whole.reshape(*dilation, batch, *places, channels)
    pairs = [axis for place in range(rank) for axis in (rank + 1 + place, place)]
    whole = lax.transpose(whole, (rank, *pairs, 2 * rank + 1))
    return whole.reshape(batch, *(p * d for p, d in zip(places, dilation, strict=True)), channels)


def depthwise_kernel_gradient(convolution: Convolution) -> Compute | None:
    """Rule: as many batch groups as the batch has rows, which are the channels of a depthwise convolution's input."""
    groups, rank = convolution.batch_groups, convolution.rank
    is_gradient = (
        rank in (1, 2)
        and groups > 1
        and groups == convolution.lhs[0]
        and convolution.feature_groups == 1
        and set(convolution.lhs_dilation) <= {1}
        and math.prod(convolution.out[1:-1]) <= _MOST_TAPS_IN_ALL
        and convolution.rhs[-1] // groups <= MOST_TAPS
        and not convolution.is_empty
    )
    if not is_gradient:
        return None

    def compute(image: jax.Array, gradient: jax.Array) -> jax.Array:
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        image, gradient = (array.astype(dtype) for array in batch_first(image, gradient))
        return _gradient(convolution, image, gradient)[None].astype(convolution.dtype)

    return compute


@dataclass(frozen=True)
class _Blocks:
    """Division of the output's gradient into blocks.

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
    of_each = [_gradient_of_one(window, padding, image, gradient[..., m::many]) for m in range(many)]
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


def _gradient_of_one(window: _Window, padding: Any, image: jax.Array, gradient: jax.Array) -> jax.Array:
    """Returns (taps, groups) for one output of each group."""
    blocks = _blocks(gradient.shape, gradient.dtype.itemsize)
    height, width = (_reach(window, axis, size) for axis, size in ((0, blocks.rows), (1, gradient.shape[2])))
    zero = image.dtype.type(0)
    top, left = padding[0][0], padding[1][0]
    rows = range(top, top + image.shape[1])
    needed = (blocks.per_image - 1) * blocks.rows * window.strides[0] + height
    bottom, right = needed - top - image.shape[1], width - left - image.shape[2]
    image = lax.pad(image, zero, [(0, 0, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0)])
    missing = blocks.per_image * blocks.rows - gradient.shape[1]
    gradient = lax.pad(gradient, zero, [(0, 0, 0), (0, missing, 0), (0, 0, 0), (0, 0, 0)])
    sums: list[jax.Array] = []
    at_a_time = max(1, MOST_TAPS // window.shape[1])
    for first in range(0, window.shape[0], at_a_time):
        part = replace(window, shape=(min(at_a_time, window.shape[0] - first), window.shape[1]))
        height, start = _reach(part, 0, blocks.rows), first * window.dilation[0]
        # Rows of a block that may be more than padding: only where an image is one block are they always the same.
        filled = range(max(0, rows.start - start), max(0, rows.stop - start))
        filled = filled if blocks.per_image == 1 else range(height)
        sums += _sum_blocks(part, blocks, height, filled, image[:, start:], gradient)
    return jnp.stack([row.sum(axis=0) for row in sums])


def _reach(window: _Window, axis: int, places: int) -> int:
    """Returns the length of the image that `places` positions of the window see."""
    return (places - 1) * window.strides[axis] + (window.shape[axis] - 1) * window.dilation[axis] + 1


def _sum_blocks(
    window: _Window, blocks: _Blocks, height: int, filled: range, image: jax.Array, gradient: jax.Array
) -> list[jax.Array]:
    """Returns for each tap a row (width, groups): the sum over all images and rows."""
    rows = gradient.shape[2:]
    zeros = [jnp.zeros(rows, gradient.dtype)] * math.prod(window.shape)
    add_block = partial(_add_block, window, filled)
    if blocks.count == 1:
        return add_block(image, gradient, zeros)

    def step(number: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
        first, block = number // blocks.per_image * blocks.images, number % blocks.per_image * blocks.rows
        some = lax.dynamic_slice(gradient, (first, block, 0, 0), (blocks.images, blocks.rows, *rows))
        start = (first, block * window.strides[0], 0, 0)
        seen = lax.dynamic_slice(image, start, (blocks.images, height, *image.shape[2:]))
        # Always true, but it keeps XLA from fusing the slices into the sums. Fused, the block's number is loaded anew
        # for every element (seen in the optimised LLVM IR), and LLVM uses no vector instructions.
        return lax.cond(number >= 0, add_block, lambda _, __, sums: sums, seen, some, sums)

    return lax.fori_loop(0, blocks.count, step, zeros)


def _add_block(
    window: _Window, filled: range, image: jax.Array, gradient: jax.Array, sums: list[jax.Array]
) -> list[jax.Array]:
    """Adds the products of a block to the sums, one for each place of the kernel.

    Rows of the image outside of `filled` are padding and would add zeros: of a picture of 4x4 under a kernel of 7x7
    they are 12 of 28, which XLA would compile and compute.
    """
    images, rows, width, _ = gradient.shape
    (down, across), (step_down, step_across) = window.dilation, window.strides
    totals: list[jax.Array] = []
    for total, (i, j) in zip(sums, taps(window.shape), strict=True):
        columns = slice(j * across, j * across + (width - 1) * step_across + 1, step_across)
        for n in range(images):
            for row in range(rows):
                seen = i * down + row * step_down
                if seen in filled:
                    total = total + image[n, seen, columns] * gradient[n, row]
        totals.append(total)
    return totals
