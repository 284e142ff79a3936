"""Elementwise functions, comparisons and reductions of Keras 2's backend."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from lockstep._types import Tensor
from lockstep.compat.tensorflow._types import AxisLike


def clip(x: Tensor, min_value: Tensor, max_value: Tensor) -> Any:
    """Limits values; None for no limit. A maximum below the minimum counts as the minimum."""
    low = -float("inf") if min_value is None else min_value
    high = float("inf") if max_value is None else max_value
    if isinstance(low, (int, float)) and isinstance(high, (int, float)):
        # Keras 2 raised a maximum below the minimum to it.
        high = max(low, high)
    return ops.clip(x, low, high)


def sqrt(x: Tensor) -> Any:
    """Returns the square root; of negative values, 0."""
    # Keras 2 clips, so that rounding below 0 gives no NaN.
    return ops.sqrt(ops.maximum(x, 0))


def pow(x: Tensor, a: Tensor) -> Any:
    """Returns `x` to the power `a`."""
    return ops.power(x, a)


def argmax(x: Tensor, axis: int = -1) -> Any:
    """Returns where the greatest value along an axis is."""
    return ops.argmax(x, axis=axis)


def argmin(x: Tensor, axis: int = -1) -> Any:
    """Returns where the least value along an axis is."""
    return ops.argmin(x, axis=axis)


def mean(x: Tensor, axis: AxisLike = None, keepdims: bool = False) -> Any:
    """Returns the mean; truth values count as 0 and 1."""
    return ops.mean(_as_float(x), axis=axis, keepdims=keepdims)


def std(x: Tensor, axis: AxisLike = None, keepdims: bool = False) -> Any:
    """Returns the standard deviation of all values, not the estimate from a sample."""
    return ops.std(_as_float(x), axis=axis, keepdims=keepdims)


def var(x: Tensor, axis: AxisLike = None, keepdims: bool = False) -> Any:
    """Returns the variance of all values, not the estimate from a sample."""
    return ops.var(_as_float(x), axis=axis, keepdims=keepdims)


def _as_float(x: Tensor) -> Any:
    # Truth values are averaged in the default type, as in Keras 2.
    return ops.cast(x, keras.config.floatx()) if keras.backend.standardize_dtype(x.dtype) == "bool" else x


def all(x: Tensor, axis: AxisLike = None, keepdims: bool = False) -> Any:
    """Returns whether all values are true."""
    return ops.all(ops.cast(x, "bool"), axis=axis, keepdims=keepdims)


def any(x: Tensor, axis: AxisLike = None, keepdims: bool = False) -> Any:
    """Returns whether some value is true."""
    return ops.any(ops.cast(x, "bool"), axis=axis, keepdims=keepdims)


def cumsum(x: Tensor, axis: int = 0) -> Any:
    """Returns running sums along an axis."""
    return ops.cumsum(x, axis=axis)


def cumprod(x: Tensor, axis: int = 0) -> Any:
    """Returns running products along an axis."""
    return ops.cumprod(x, axis=axis)


def l2_normalize(x: Tensor, axis: AxisLike = None) -> Any:
    """Divides by the Euclidean length along an axis, or of all values."""
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return ops.multiply(x, ops.rsqrt(ops.maximum(squares, 1e-12)))


def dot(x: Tensor, y: Tensor) -> Any:
    """Multiplies: the last axis of `x` with the last but one of `y`."""
    return ops.dot(x, y)


def batch_dot(x: Tensor, y: Tensor, axes: AxisLike = None) -> Any:
    """Multiplies example by example: axis `axes[0]` of `x` with axis `axes[1]` of `y`.

    Args:
        x: Of shape (batch, ...), two axes or more.
        y: Likewise.
        axes: Two axes, or one for both. Default: the last of `x`, and the last but one of `y`, or its only one.

    Returns:
        Of shape (batch, other axes of x, other axes of y), at least (batch, 1).
    """
    x_axis, y_axis = _dot_axes(len(x.shape), len(y.shape), axes)
    letters = iter("bcdefghijklmnopqrstuvwxyz")
    in_x = ["a", *(next(letters) for _ in x.shape[1:])]
    in_y = ["a", *(next(letters) for _ in y.shape[1:])]
    in_y[y_axis] = in_x[x_axis]
    # The summed letter is left out of both; einsum does the rest.
    remaining = [letter for letter in in_x[1:] + in_y[1:] if letter != in_x[x_axis]]
    product = ops.einsum(f"{''.join(in_x)},{''.join(in_y)}->a{''.join(remaining)}", x, y)
    return product if remaining else ops.expand_dims(product, 1)


def _dot_axes(x_rank: int, y_rank: int, axes: AxisLike) -> tuple[int, int]:
    if axes is None:
        axes = (x_rank - 1, 1 if y_rank == 2 else y_rank - 2)
    x_axis, y_axis = (axes, axes) if isinstance(axes, int) else axes
    return x_axis % x_rank, y_axis % y_rank
