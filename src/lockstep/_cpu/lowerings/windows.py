"""Slices of what windows see, one for each place in the window, and expressions that XLA must not fuse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Shape = tuple[int, ...]
Padding = Sequence[tuple[int, int]]

# A rule's answer where XLA's own program is best, if only XLA does not rewrite it: then it is lowered in a branch.
ISOLATE_ORIGINAL: Any = object()


def isolate(compute: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Keeps XLA from fusing `compute` with what comes before and after it."""
    # XLA takes additions and maxima for cheap, and repeats them in every expression that reads them: in the reduction
    # for a bias' gradient or a batch's moments, or for each place of a window. The seed CNN's step took 8.7 ms of CPU
    # time that way, and 5.2 this way (2-core EPYC, busy). Nothing is lost: what this replaces would have stood alone.

    def branch(*operands: jax.Array) -> jax.Array:
        shape = jax.eval_shape(compute, *operands)

        def never(*operands: jax.Array) -> jax.Array:
            # Of the same type, which under `shard_map` includes on which axes it varies.
            first = [lax.convert_element_type(a[(0,) * a.ndim], shape.dtype) for a in operands]
            return lax.broadcast(sum(first[1:], first[0]), shape.shape)

        # A condition that XLA does not see through in time: it gives up barriers only after deciding what to fuse.
        always = lax.optimization_barrier(jnp.int32(1)) > 0
        return lax.cond(always, compute, never, *operands)

    return branch


def taps(window: Shape) -> Iterator[Shape]:
    """Yields the places in a window in row-major order."""
    return itertools.product(*(range(size) for size in window))


def tap_number(tap: Shape, window: Shape) -> int:
    """Returns the position of `tap` among `taps(window)`."""
    return sum(place * math.prod(window[axis + 1 :]) for axis, place in enumerate(tap))


def pad(x: jax.Array, padding: Padding, value: float) -> jax.Array:
    """Pads `x` on its own, before anything reads it."""
    # A pad inside of a loop is a branch for each element, and keeps LLVM from using vector instructions: with it the
    # gradient of 3x3 max pooling of stride 2 takes 4.0 ms, without it 0.7 ms (64x26x26x32 float32, 2-core EPYC).
    if not any(low or high for low, high in padding):
        return x
    filling = np.asarray(value, x.dtype)
    return isolate(lambda a: lax.pad(a, filling, [(low, high, 0) for low, high in padding]))(x)


def tap_slice(x: jax.Array, tap: Shape, strides: Shape, out: Shape, dilation: Shape | None = None) -> jax.Array:
    """Returns what each window of padded `x` has at `tap`: an array of shape `out`."""
    starts = tap if dilation is None else tuple(t * d for t, d in zip(tap, dilation, strict=True))
    limits = [start + (size - 1) * stride + 1 for start, size, stride in zip(starts, out, strides, strict=True)]
    return lax.slice(x, starts, limits, strides)
