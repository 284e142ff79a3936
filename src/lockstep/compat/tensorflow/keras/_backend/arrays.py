"""Shapes and types, elementwise functions and reductions of Keras 2's backend."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from lockstep._types import Tensor
from lockstep.compat.tensorflow._types import AxisLike, DTypeLike, Padding, SizeLike

__all__ = ["all", "any", "arange", "argmax", "argmin", "batch_dot", "batch_flatten", "cast", "cast_to_floatx", "clip"]
__all__ += ["concatenate", "cumprod", "cumsum", "dot", "dtype", "expand_dims", "flatten", "gather", "int_shape"]
__all__ += ["is_sparse", "l2_normalize", "mean", "ndim", "one_hot", "permute_dimensions", "pow", "repeat"]
__all__ += ["repeat_elements", "resize_images", "reverse", "shape", "spatial_2d_padding", "spatial_3d_padding", "sqrt"]
__all__ += ["squeeze", "std", "temporal_padding", "tile", "to_dense", "transpose", "var"]


def cast(x: Tensor, dtype: DTypeLike) -> Any:
    """Changes the type of the values."""
    return ops.cast(x, dtype)


def cast_to_floatx(x: Tensor) -> Any:
    """Changes the type of the values to the default one."""
    # Arrays of numpy stay numpy's, as in Keras 2.
    if ops.is_tensor(x) or isinstance(x, keras.KerasTensor):
        return ops.cast(x, keras.config.floatx())
    return np.asarray(x, dtype=keras.config.floatx())


def dtype(x: Tensor) -> str:
    """Returns the name of the type of the values."""
    return keras.backend.standardize_dtype(x.dtype)


def ndim(x: Tensor) -> int:
    """Returns the number of axes."""
    return len(x.shape)


def int_shape(x: Tensor) -> tuple[int | None, ...] | None:
    """Returns the shape, with None where it varies; None if `x` has no shape."""
    shape = getattr(x, "shape", None)
    return None if shape is None else tuple(shape)


def shape(x: Tensor) -> Any:
    """Returns the shape. Inside of a compiled step all sizes are known, so that they are numbers, not tensors."""
    # Keras gives numbers here, and None where a symbolic size is open.
    return ops.shape(x)


def flatten(x: Tensor) -> Any:
    """Makes one axis of all."""
    return ops.reshape(x, (-1,))


def batch_flatten(x: Tensor) -> Any:
    """Makes one axis of all but the first."""
    # The size of the batch may be open: -1 stands for it.
    return ops.reshape(x, (-1, math.prod(x.shape[1:])))


def concatenate(tensors: Tensor, axis: int = -1) -> Any:
    """Joins along an axis."""
    return ops.concatenate(tensors, axis=axis)


def expand_dims(x: Tensor, axis: int = -1) -> Any:
    """Adds an axis of size 1."""
    return ops.expand_dims(x, axis)


def squeeze(x: Tensor, axis: int) -> Any:
    """Removes an axis of size 1."""
    return ops.squeeze(x, axis)


def permute_dimensions(x: Tensor, pattern: Any) -> Any:
    """Puts the axes into another order."""
    return ops.transpose(x, axes=pattern)


def transpose(x: Tensor) -> Any:
    """Puts the axes into the opposite order."""
    return ops.transpose(x)


def repeat(x: Tensor, n: int) -> Any:
    """Makes (batch, n, width) of (batch, width)."""
    # Keras 2's RepeatVector.
    return ops.repeat(ops.expand_dims(x, 1), n, axis=1)


def repeat_elements(x: Tensor, rep: int, axis: int) -> Any:
    """Repeats each element along an axis."""
    return ops.repeat(x, rep, axis=axis)


def tile(x: Tensor, n: SizeLike) -> Any:
    """Repeats the whole along each axis."""
    return ops.tile(x, [n] if isinstance(n, int) else n)


def reverse(x: Tensor, axes: AxisLike) -> Any:
    """Turns axes around."""
    return ops.flip(x, axis=axes)


def gather(reference: Tensor, indices: Tensor) -> Any:
    """Picks along the first axis."""
    return ops.take(reference, indices, axis=0)


def one_hot(indices: Tensor, num_classes: int) -> Any:
    """Returns vectors of the default type, with a one at each index."""
    return ops.one_hot(indices, num_classes)


def arange(start: Tensor, stop: Tensor = None, step: Any = 1, dtype: str = "int32") -> Any:
    """Returns evenly spaced values."""
    # Keras 2: a negative length counts as 0.
    if stop is None and start < 0:
        start = 0
    return ops.arange(start, stop, step, dtype=dtype)


def temporal_padding(x: Tensor, padding: tuple[int, int] = (1, 1)) -> Any:
    """Pads the time axis of (batch, time, features) with zeros."""
    return ops.pad(x, [[0, 0], list(padding), [0, 0]])


def spatial_2d_padding(x: Tensor, padding: Padding = ((1, 1), (1, 1)), data_format: str | None = None) -> Any:
    """Pads height and width of pictures with zeros."""
    return _pad(x, padding, data_format)


def spatial_3d_padding(x: Tensor, padding: Padding = ((1, 1), (1, 1), (1, 1)), data_format: str | None = None) -> Any:
    """Pads the three spatial axes with zeros."""
    return _pad(x, padding, data_format)


def _pad(x: Tensor, padding: Padding, data_format: str | None) -> Any:
    inner = [list(pair) for pair in padding]
    last = (data_format or keras.config.image_data_format()) == "channels_last"
    return ops.pad(x, [[0, 0], *inner, [0, 0]] if last else [[0, 0], [0, 0], *inner])


def resize_images(
    x: Tensor, height_factor: int, width_factor: int, data_format: str, interpolation: str = "nearest"
) -> Any:
    """Makes pictures larger by whole factors."""
    # Keras 3 has no function of whole factors; the layer has no weights.
    layer = keras.layers.UpSampling2D((height_factor, width_factor), data_format, interpolation)
    return layer(x)


def is_sparse(tensor: Tensor) -> bool:
    """Returns False: arrays here are dense."""
    return False


def to_dense(tensor: Tensor) -> Any:
    """Returns its argument: arrays here are dense."""
    return tensor


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
    x_rank, y_rank = len(x.shape), len(y.shape)
    if axes is None:
        axes = (x_rank - 1, 1 if y_rank == 2 else y_rank - 2)
    x_axis, y_axis = (axes, axes) if isinstance(axes, int) else axes
    x_axis, y_axis = x_axis % x_rank, y_axis % y_rank
    letters = iter("bcdefghijklmnopqrstuvwxyz")
    in_x = ["a", *(next(letters) for _ in x.shape[1:])]
    in_y = ["a", *(next(letters) for _ in y.shape[1:])]
    in_y[y_axis] = in_x[x_axis]
    # The summed letter is left out of both; einsum does the rest.
    remaining = [letter for letter in in_x[1:] + in_y[1:] if letter != in_x[x_axis]]
    product = ops.einsum(f"{''.join(in_x)},{''.join(in_y)}->a{''.join(remaining)}", x, y)
    return product if remaining else ops.expand_dims(product, 1)
