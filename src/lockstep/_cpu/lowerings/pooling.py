"""Max and average pooling, and the gradient of max pooling.

Forward, XLA reduces window by window, an element at a time: 14 ms for the maximum and 10 ms for the sum of 3x3 windows
of stride 1 over 16x56x56x64, 1.6 ms for 3x3 of stride 2 over 64x26x26x32, 0.92 ms for 2x2 over 16x56x56x64. As a chain
of additions or maxima over slices it takes 3.9, 6.4, 0.9 and 0.44 ms (float32, 2-core EPYC, 2 threads).

For the gradient XLA walks over the windows one by one: 7.9 ms for 2x2 windows over 64x26x26x32, 25 ms for 3x3 windows
of stride 2, 72 ms for 2x2 over 16x56x56x64 in bfloat16. What stands below takes 0.23, 0.64 and 4.5 ms (2-core EPYC, 2
threads).

Each output first learns which place in its window won: `winners`, an integer array as large as the output. Then each
input asks the few windows that it lies in whether it is their winner. The inputs are taken in blocks of one stride,
because all inputs at the same place in a block have the same place in each of their windows. Both passes are plain
arithmetic on slices, which XLA makes one vector loop of each.

LLVM unrolls a short loop of few instructions, over up to 32 channels, before it could use vectors, and does not find
them again. Where windows do not overlap, one pass does both, in a longer body: 0.47 ms instead of 2.2 for 2x2 windows
over 64x26x26x32, 0.47 instead of 2.1 over 16x48x48x32, 1.1 and 1.1 over 16x56x56x64 (2-core EPYC with AVX2).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._cpu.lowerings.convolution import FLOATS
from lockstep._cpu.lowerings.windows import Padding, Shape, isolate, pad, tap_number, tap_slice, taps
from lockstep._types import Aval

# XLA visits every place of a window once, as the gradient does; beyond so many the expression is slow to compile.
_MOST_GRADIENT_TAPS = 49
# Places of a window times channels: below, LLVM unrolls the loop over channels also of the pass that does both. 2x2
# windows over 16x56x56: 0.33 ms instead of 2.1 for 24 channels, but 4.4 instead of 1.7 for 16 and 2.2 instead of 1.0
# for 8; 3x3 windows over 16x27x27x8 0.15 instead of 0.28.
_LEAST_FOR_ONE_PASS = 65
# In float16 a chain converts each value on its own: it took 2.3 times as long as XLA's loop.
_CHAINED = ("float32", "float64", "bfloat16")
# Longer chains are slower than XLA's loop over the window, and slow to compile. Short ones do not make up for margins.
_MOST_CHAIN_TAPS = 16
_LEAST_WITH_MARGINS = 4


def max_gradient(
    source: Aval,
    operand: Aval,
    *,
    select_prim: Any,
    window_dimensions: Shape,
    window_strides: Shape,
    padding: Padding,
) -> Any:
    """Rule: the gradient of max pooling, given that of its output (`source`) and its input (`operand`)."""
    if select_prim is not lax.ge_p or operand.dtype.name not in FLOATS or source.dtype != operand.dtype:
        return None
    if not 1 < np.prod(window_dimensions) <= _MOST_GRADIENT_TAPS or 0 in source.shape:
        return None
    if any(low < 0 or high < 0 for low, high in padding):
        return None
    window, strides = tuple(window_dimensions), tuple(window_strides)
    is_side_by_side = window == strides and not np.any(padding)
    if is_side_by_side and _is_faster_in_one_pass(operand, window):
        return lambda source, operand: _select_in_one_pass(source, operand, window)

    def compute(source: jax.Array, operand: jax.Array) -> jax.Array:
        outputs = source.shape
        winners = isolate(lambda x: _winners(x, window, strides, outputs))(pad(operand, padding, -np.inf))
        # Blocks of one stride that hold the leading padding and the input.
        sizes = zip(operand.shape, strides, padding, strict=True)
        blocks = tuple(-(-(low + size) // stride) for size, stride, (low, _) in sizes)
        # Windows that do not exist, in front and behind, so that all blocks are alike.
        counts = zip(window, strides, blocks, outputs, strict=True)
        margins = [(-(-size // stride) - 1, max(0, count - there)) for size, stride, count, there in counts]
        starts = [low for low, _ in padding]
        limits = [low + size for low, size in zip(starts, operand.shape, strict=True)]

        def collect_input(source: jax.Array, winners: jax.Array) -> jax.Array:
            return lax.slice(_collect(source, winners, window, strides, blocks), starts, limits)

        return isolate(collect_input)(pad(source, margins, 0), pad(winners, margins, -1))

    return compute


def _is_faster_in_one_pass(operand: Aval, window: Shape) -> bool:
    # Windows over the last axis leave nothing to loop over: 0.62 ms instead of 0.29 for 2x2 over 16x3x56x56. Narrower
    # types are converted for each input once more: bfloat16 0.60 instead of 0.32 for 2x2 over 16x28x28x64.
    if operand.dtype != np.float32 or window[-1] > 1:
        return False
    return math.prod(window) * operand.shape[-1] >= _LEAST_FOR_ONE_PASS


def _select_in_one_pass(source: jax.Array, operand: jax.Array, window: Shape) -> jax.Array:
    """Returns the gradient where windows lie side by side: each input is in one of them at most."""

    def select(source: jax.Array, operand: jax.Array) -> jax.Array:
        winners = _winners(operand, window, window, source.shape)
        return _collect(source, winners, window, window, source.shape)

    gradient = isolate(select)(source, operand)
    return pad(gradient, [(0, size - covered) for size, covered in zip(operand.shape, gradient.shape, strict=True)], 0)


def _winners(x: jax.Array, window: Shape, strides: Shape, out: Shape) -> jax.Array:
    """Returns the number of the tap that each window of the padded input selects."""
    # As XLA does it, from the first tap to the last: what is there stays if it is greater or equal. So the first of
    # equals wins, a NaN loses to whatever comes next, and padding (-inf) in front wins over -inf.
    best, winners = None, jnp.zeros(out, jnp.int32)
    for number, tap in enumerate(taps(window)):
        value = tap_slice(x, tap, strides, out)
        if best is not None:
            stays = best >= value
            winners = jnp.where(stays, winners, number)
            value = jnp.where(stays, best, value)
        best = value
    return winners


def _collect(source: jax.Array, winners: jax.Array, window: Shape, strides: Shape, blocks: Shape) -> jax.Array:
    """Gives each place of the padded input, in whole blocks, the gradients of the windows that selected it."""
    # `source` and `winners` have margins.
    reach = tuple(-(-size // stride) for size, stride in zip(window, strides, strict=True))
    total = None
    # The windows in row-major order, so that gradients are added up in the order in which XLA does it.
    for back in itertools.product(*(range(r - 1, -1, -1) for r in reach)):
        starts = [r - 1 - b for r, b in zip(reach, back, strict=True)]
        limits = [start + count for start, count in zip(starts, blocks, strict=True)]
        gradient = _add_block_axes(lax.slice(source, starts, limits), strides)
        selected = _add_block_axes(lax.slice(winners, starts, limits), strides)
        term = jnp.where(selected == _tap_numbers(back, window, strides), gradient, jnp.zeros((), source.dtype))
        total = term if total is None else total + term
    assert total is not None
    return total.reshape([count * stride for count, stride in zip(blocks, strides, strict=True)])


def _add_block_axes(x: jax.Array, strides: Shape) -> jax.Array:
    """Adds an axis of size 1 behind each axis with a stride, for the places within a block."""
    pairs = zip(x.shape, strides, strict=True)
    return x.reshape([n for size, stride in pairs for n in ((size, 1) if stride > 1 else (size,))])


def _tap_numbers(back: Shape, window: Shape, strides: Shape) -> np.ndarray:
    """Returns the number of the tap that the places of a block are for the window `back` blocks earlier."""
    # A place that such a window does not reach gets -2, which no window has selected.
    shape = [n for stride in strides for n in ((1, stride) if stride > 1 else (1,))]
    numbers = np.empty(strides, np.int32)
    for place in taps(strides):
        tap = tuple(p + b * stride for p, b, stride in zip(place, back, strides, strict=True))
        inside = all(t < size for t, size in zip(tap, window, strict=True))
        numbers[place] = tap_number(tap, window) if inside else -2
    return numbers.reshape(shape)


def window_max(operand: Aval, **params: Any) -> Any:
    """Rule: `reduce_window` with `max`."""
    return _chain(operand, lax.max, -np.inf, **params)


def window_sum(operand: Aval, **params: Any) -> Any:
    """Rule: `reduce_window` with `add`, in the order in which XLA adds."""
    # Windows of stride 1 without padding are left alone: they may be the gradient of average pooling, whose operand is
    # mostly zeros, and XLA sees through that (0.3 ms for 2x2 over 64x26x26x32, where the chain takes 0.9).
    if all(stride == 1 for stride in params["window_strides"]) and not np.any(params["padding"]):
        return None
    # XLA adds narrower types up in float32 and rounds once.
    if operand.dtype.itemsize < 4:
        return None
    return _chain(operand, lax.add, 0.0, **params)


def _chain(
    operand: Aval,
    combine: Callable[[jax.Array, jax.Array], jax.Array],
    start: float,
    *,
    window_dimensions: Shape,
    window_strides: Shape,
    padding: Padding,
    base_dilation: Shape,
    window_dilation: Shape,
    **others: Any,
) -> Any:
    if others or operand.dtype.name not in _CHAINED or set(base_dilation) != {1}:
        return None
    least = _LEAST_WITH_MARGINS if np.any(padding) else 2
    if not least <= np.prod(window_dimensions) <= _MOST_CHAIN_TAPS or any(low < 0 or high < 0 for low, high in padding):
        return None
    out = tuple(
        (size + low + high - (taps_ - 1) * dilation - 1) // stride + 1
        for size, (low, high), taps_, dilation, stride in zip(
            operand.shape, padding, window_dimensions, window_dilation, window_strides, strict=True
        )
    )
    if min(out) < 1:
        return None

    def reduce(x: jax.Array) -> jax.Array:
        slices = (tap_slice(x, tap, window_strides, out, window_dilation) for tap in taps(window_dimensions))
        return functools.reduce(combine, slices)

    return lambda x: isolate(reduce)(pad(x, padding, start))
