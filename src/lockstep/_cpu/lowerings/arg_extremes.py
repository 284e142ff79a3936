"""Places of the largest and smallest of many values, as the accuracies of language models take them.

XLA's CPU compiler carries value and place through one reduction, an element at a time: 4 ns for each, so that the
accuracy of a batch of 16 x 128 words of 2,000 takes 20 ms. Here the extremes of blocks come first, many elements at a
time, then the place among the blocks, then that in the block: 1.0 ms (2-core EPYC with AVX-512). Few values, and those
of another axis than the last, are compared in their order, for many places at once: 64 x 128 x 96 take 0.16 ms, and
1.6 as XLA's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._types import Aval

_TYPES = ("float32", "float64")
# Of 16 to 128 the fastest on most of eight shapes.
_BLOCK, _LEAST_BLOCKS = 32, 4
# XLA compares so many in their order itself.
_MOST_VALUES_OF_XLA = 24
# A longer axis is a loop of fewer values each: the program grows with them.
_MOST_UNROLLED, _UNROLLED = 128, 16


def largest_place(operand: Aval, *, axes: Sequence[int], index_dtype: Any, **options: Any) -> Any:
    """Rule: an `argmax` over one axis."""
    return None if options else _place(_Extreme(lax.max, lax.gt, -np.inf, jnp.argmax), operand, axes, index_dtype)


def smallest_place(operand: Aval, *, axes: Sequence[int], index_dtype: Any, **options: Any) -> Any:
    """Rule: an `argmin` over one axis."""
    return None if options else _place(_Extreme(lax.min, lax.lt, np.inf, jnp.argmin), operand, axes, index_dtype)


@dataclass(frozen=True)
class _Extreme:
    """The largest or the smallest.

    Attributes:
        of: Of two values.
        is_beyond: Whether the first of two values is beyond the second.
        least: No value is beaten by it.
        place: Of the first extreme on an axis.
    """

    of: Callable[..., Any]
    is_beyond: Callable[[jax.Array, jax.Array], jax.Array]
    least: float
    place: Callable[..., jax.Array]


def _place(extreme: _Extreme, operand: Aval, axes: Sequence[int], index_dtype: Any) -> Any:
    if operand.dtype.name not in _TYPES or len(axes) != 1:
        return None
    (axis,) = axes
    count = operand.shape[axis]
    if axis == operand.ndim - 1 and count >= _LEAST_BLOCKS * _BLOCK:
        place = partial(_place_by_blocks, extreme)
    elif count > _MOST_VALUES_OF_XLA:
        place = partial(_place_in_order, extreme, axis)
    else:
        return None
    return lambda x: place(x).astype(index_dtype)


def _place_by_blocks(extreme: _Extreme, x: jax.Array) -> jax.Array:
    """Returns the place on the last axis: first the block, then the place in it."""
    count, last = x.shape[-1], x.ndim - 1
    block = (1,) * last + (_BLOCK,)
    padding = [(0, 0)] * last + [(0, -count % _BLOCK)]
    # An extreme of values of which one is NaN is NaN, and `place` returns the first of these.
    extremes = lax.reduce_window(x, x.dtype.type(extreme.least), extreme.of, block, block, padding)
    # The last block begins earlier, so that it is whole. If it is taken, what it has of the one before is not it.
    begin = jnp.minimum(extreme.place(extremes, -1) * _BLOCK, count - _BLOCK)
    values = jnp.take_along_axis(x, begin[..., None] + jnp.arange(_BLOCK), -1, mode="clip")
    return begin + extreme.place(values, -1)


def _place_in_order(extreme: _Extreme, axis: int, x: jax.Array) -> jax.Array:
    """Returns the place on an axis: each value is compared with the extreme of those before it."""

    def compare(best: tuple[jax.Array, jax.Array], values: jax.Array, start: Any) -> tuple[jax.Array, jax.Array]:
        extreme_so_far, place = best
        for i in range(values.shape[axis]):
            value = lax.index_in_dim(values, i, axis, keepdims=False)
            # The first NaN is the place.
            is_first_nan = (value != value) & (extreme_so_far == extreme_so_far)
            is_better = extreme.is_beyond(value, extreme_so_far) | is_first_nan
            extreme_so_far = jnp.where(is_better, value, extreme_so_far)
            place = jnp.where(is_better, start + i, place)
        return extreme_so_far, place

    count = x.shape[axis]
    first = lax.index_in_dim(x, 0, axis, keepdims=False)
    best = first, jnp.zeros(first.shape, np.int32)
    if count <= _MOST_UNROLLED:
        return compare(best, x, np.int32(0))[1]

    def compare_some(i: jax.Array, best: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        # The last ones begin earlier, so that they are as many: a value that comes again is not beyond itself.
        start = jnp.minimum(i * _UNROLLED, count - _UNROLLED).astype(np.int32)
        return compare(best, lax.dynamic_slice_in_dim(x, start, _UNROLLED, axis), start)

    return lax.fori_loop(0, -(-count // _UNROLLED), compare_some, best)[1]
