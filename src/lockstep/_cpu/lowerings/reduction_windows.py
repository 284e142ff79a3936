"""Max and average pooling themselves.

XLA reduces window by window, an element at a time: 14 ms for the maximum and 10 ms for the sum of 3x3 windows of stride
1 over 16x56x56x64, 1.6 ms for 3x3 of stride 2 over 64x26x26x32, 0.92 ms for 2x2 over 16x56x56x64. As a chain of
additions or maxima over slices it takes 3.9, 6.4, 0.9 and 0.44 ms (float32, 2-core EPYC, 2 threads).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from lockstep._cpu.lowerings.windows import Padding, Shape, apart, padded, seen, taps

# In float16 a chain converts each value on its own: it took 2.3 times as long as XLA's loop.
_FLOATS = ("float32", "float64", "bfloat16")
# Longer chains are slower than XLA's loop over the window, and slow to compile. Short ones do not make up for margins.
_MOST_TAPS = 16
_LEAST_WITH_MARGINS = 4


def window_max(operand: Any, **params: Any) -> Any:
    """Rule: `reduce_window` with `max`."""
    return _chain(operand, lax.max, -np.inf, **params)


def window_sum(operand: Any, **params: Any) -> Any:
    """Rule: `reduce_window` with `add`, in the order in which XLA adds.

    Windows of stride 1 without padding are left alone: they may be the gradient of average pooling, whose operand is
    mostly zeros, and XLA sees through that (0.3 ms for 2x2 over 64x26x26x32, where the chain takes 0.9).
    """
    if all(stride == 1 for stride in params["window_strides"]) and not np.any(params["padding"]):
        return None
    if operand.dtype.itemsize < 4:
        return None  # XLA adds up in float32 and rounds once.
    return _chain(operand, lax.add, 0.0, **params)


def _chain(
    operand: Any,
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
    if others or operand.dtype.name not in _FLOATS or set(base_dilation) != {1}:
        return None
    least = _LEAST_WITH_MARGINS if np.any(padding) else 2
    if not least <= np.prod(window_dimensions) <= _MOST_TAPS or any(low < 0 or high < 0 for low, high in padding):
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
        slices = (seen(x, tap, window_strides, out, window_dilation) for tap in taps(window_dimensions))
        return functools.reduce(combine, slices)

    return lambda x: apart(reduce)(padded(x, padding, start))
