"""Depthwise convolutions and their input gradients: sums of shifted images, each times one row of the kernel.

The sum is one vector loop over the channels, and all threads take part. The input gradient of a convolution with
strides is a convolution of a dilated image; each of its phases is a sum that skips the zeros.

The input gradient without strides, as jax writes it, XLA computes quickly in the body of a loop; in the program's entry
computation it brings it into another form first. So it is put into a branch, where XLA leaves it as it is: 4x56x56x144
takes 0.98 ms then; 48 in the entry computation, and 1.6 as a sum.

Forward, XLA's own against a prototype of this in the same run (ms, medians, float32, batch 16, 3x3, 2-core EPYC, 2
threads): 112x112x32 168 and 6.0; 113x113x96, stride 2, 188 and 47; 56x56x144 207 and 23; 28x28x192 65 and 3.1;
14x14x384 32 and 1.0; 7x7x960 22 and 0.9.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.canonical import Convolution, canonical
from lockstep._cpu.lowerings.windows import OWN_APART, Shape, padded

# Terms that each output may be the sum of (7x7 kernels have 49), and inputs or outputs that a group may have.
_MOST_TERMS = 64
_MOST_PER_GROUP = 8
# Terms of XLA's naive loop, and groups that are few.
_MOST_NAIVE_TERMS = 9
_FEW_GROUPS = 8


def depthwise(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Rule: as many groups as channels, of one input or one output each."""
    convolution = canonical(lhs, rhs, **params)
    if convolution is None or not _is_depthwise(convolution):
        return None
    if _is_quick_as_written(convolution) and lhs.dtype.name in ("float32", "float16"):
        return OWN_APART

    def compute(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        image, kernel = convolution.enter(lhs, rhs)
        dtype = jnp.promote_types(image.dtype, jnp.float32)
        total = _grouped(convolution, image.astype(dtype), kernel.astype(dtype))
        return convolution.leave(total.astype(lhs.dtype))

    return compute


def _is_depthwise(convolution: Convolution) -> bool:
    groups = convolution.feature_groups
    inputs, outputs = convolution.rhs[-2], convolution.rhs[-1] // groups
    ways = zip(convolution.strides, convolution.lhs_dilation, strict=True)
    return (
        groups > 1
        and convolution.batch_groups == 1
        and 1 in (inputs, outputs)
        and inputs * outputs <= _MOST_PER_GROUP
        and math.prod(convolution.window) * inputs <= _MOST_TERMS
        and all(1 in way for way in ways)
        and not convolution.is_empty
    )


def _is_quick_as_written(convolution: Convolution) -> bool:
    """Whether XLA's naive loop is quick: over channels that lie side by side, for an input's gradient as jax writes it.

    With strides or large windows the sum is quicker. With few channels it is not: there one vector holds few of them.
    """
    per_group = convolution.rhs[-2] * convolution.rhs[-1] // convolution.feature_groups
    steps = {*convolution.strides, *convolution.lhs_dilation}
    return (
        not convolution.is_canonical
        and convolution.lhs_order == tuple(range(convolution.rank + 2))
        and math.prod(convolution.window) <= _MOST_NAIVE_TERMS
        and (steps == {1} or convolution.rank == 1)
        and (per_group == 1 or convolution.feature_groups < _FEW_GROUPS)
    )


def _grouped(convolution: Convolution, image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolves each group's inputs with each of its kernels; one of the two is one."""
    groups = convolution.feature_groups
    outputs = kernel.shape[-1] // groups
    results = [
        _phases(convolution, [image[..., i::inputs] for i in range(inputs)], kernel[..., o::outputs])
        for inputs in (kernel.shape[-2],)
        for o in range(outputs)
    ]
    if outputs == 1:
        return results[0]
    return jnp.stack(results, axis=-1).reshape(convolution.out)


@dataclass(frozen=True)
class _Axis:
    """What one spatial dimension of the output sees: place `q * dilation + phase` sees input `q * stride + offset`.

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
        """All offsets, and that of the input itself, so that there is one."""
        return [0, *(offset for phase in self.phases for _, offset in phase)]

    @property
    def low(self) -> int:
        """How many zeros are needed before the input."""
        return max(0, -min(self.offsets))

    @property
    def high(self) -> int:
        """How many zeros are needed after it."""
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


def _phases(convolution: Convolution, images: list[jax.Array], kernel: jax.Array) -> jax.Array:
    """Computes one output of each group, phase by phase, and puts the phases together."""
    axes = [_axis(convolution, axis) for axis in range(convolution.rank)]
    margins = [(0, 0), *((a.low, a.high) for a in axes), (0, 0)]
    images = [padded(image, margins, 0) for image in images]
    phases = {
        phase: _sum(axes, phase, images, kernel) for phase in itertools.product(*(range(len(a.phases)) for a in axes))
    }
    whole = _interleaved(phases, convolution.lhs_dilation)
    return lax.slice(whole, [0] * whole.ndim, (*convolution.out[:-1], whole.shape[-1]))


def _sum(axes: list[_Axis], phase: Shape, images: list[jax.Array], kernel: jax.Array) -> jax.Array:
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


def _interleaved(phases: dict[Shape, jax.Array], dilation: Shape) -> jax.Array:
    """Puts phases in turn along each dimension.

    As one stack that is then transposed: 34 ms for the input gradient of 16x113x113x96, stride 2, where concatenating
    the phases dimension by dimension took 269 (the fastest of 9, float32, 2-core EPYC).
    """
    if len(phases) == 1:
        return next(iter(phases.values()))
    rank = len(dilation)
    whole = jnp.stack([phases[phase] for phase in sorted(phases)])
    batch, *places, channels = whole.shape[1:]
    whole = whole.reshape(*dilation, batch, *places, channels)
    pairs = [axis for place in range(rank) for axis in (rank + 1 + place, place)]
    whole = lax.transpose(whole, (rank, *pairs, 2 * rank + 1))
    return whole.reshape(batch, *(p * d for p, d in zip(places, dilation, strict=True)), channels)
