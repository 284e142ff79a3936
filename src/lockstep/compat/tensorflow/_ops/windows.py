"""Convolutions, pooling and normalisation of tf.nn, by keras.ops on any array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.make import describe
from lockstep.compat.tensorflow._types import Argument, Padding, ShapeLike, WindowLike
from lockstep.errors import ArgumentError

__all__ = ["atrous_conv2d", "avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_normalization", "conv1d"]
__all__ += ["conv2d", "conv2d_transpose", "conv3d", "convolution", "depth_to_space", "depthwise_conv2d"]
__all__ += ["local_response_normalization", "max_pool", "max_pool1d", "max_pool2d", "max_pool3d", "separable_conv2d"]
__all__ += ["space_to_depth"]


def _layout_of(data_format: str | None, dims: int) -> str:
    # TensorFlow names the letters, Keras the place of the channels. Keras' own default of the process is not asked:
    # TensorFlow's is channels last.
    if data_format is None or (data_format.startswith("N") and data_format.endswith("C")):
        return "channels_last"
    if data_format.startswith("NC") and len(data_format) == dims + 2:
        return "channels_first"
    raise ArgumentError(f'data_format must be "NHWC" or "NCHW", or the like of them. Received: {data_format!r}.')


def _spatial_sizes(value: Tensor, dims: int, data_format: str) -> Any:
    """Returns strides or sizes of the spatial dimensions, from TensorFlow's one, `dims` or `dims + 2` numbers."""
    numbers = dispatch.to_static(value)
    if isinstance(numbers, int):
        return (numbers,) * dims
    if len(numbers) == 1:
        return numbers * dims
    if len(numbers) == dims + 2:
        # TensorFlow's long form has a 1 for the batch and for the channels.
        inner = slice(1, -1) if data_format == "channels_last" else slice(2, None)
        rest = [n for i, n in enumerate(numbers) if i not in range(dims + 2)[inner]]
        if rest != [1, 1]:
            raise ArgumentError(
                f"Windows and strides go over space only: 1 for batch and channels. Received: {list(numbers)}."
            )
        return numbers[inner]
    return numbers


def _check_padding(padding: Padding) -> str:
    if isinstance(padding, str) and padding.upper() in ("SAME", "VALID"):
        return padding.lower()
    # Explicit pads per dimension, which TensorFlow takes on GPUs, are a tf.pad before.
    raise ArgumentError(f'padding must be "SAME" or "VALID". Received: {padding!r}. Pad explicitly with tf.pad.')


def _compute(function: Any, tensors: Tensor, *args: Argument, **kwargs: Argument) -> Any:
    xp, *arrays = dispatch.pick(*tensors)
    # keras.ops computes arrays of the host by JAX.
    result = function(*arrays, *args, **kwargs)
    return dispatch.give(xp, np.asarray(result) if xp is dispatch.HOST else result)


def _conv(
    dims: int,
    x: Tensor,
    filters: Tensor,
    strides: WindowLike,
    padding: Padding,
    data_format: Any,
    dilations: WindowLike,
) -> Any:
    layout = _layout_of(data_format, dims)
    return _compute(
        keras.ops.conv,
        (x, filters),
        strides=_spatial_sizes(strides, dims, layout),
        padding=_check_padding(padding),
        data_format=layout,
        dilation_rate=_spatial_sizes(1 if dilations is None else dilations, dims, layout),
    )


def conv1d(
    input: Tensor,
    filters: Tensor,
    stride: WindowLike,
    padding: Padding,
    data_format: str | None = "NWC",
    dilations: WindowLike = None,
    name: str | None = None,
) -> Tensor:
    """Convolves sequences `[batch, width, channels]`. Source: tf.nn.conv1d."""
    return _conv(1, input, filters, stride, padding, data_format, dilations)


def conv2d(
    input: Tensor,
    filters: Tensor,
    strides: WindowLike,
    padding: Padding,
    data_format: str | None = "NHWC",
    dilations: WindowLike = None,
    name: str | None = None,
) -> Tensor:
    """Convolves images `[batch, height, width, channels]`. Source: tf.nn.conv2d."""
    return _conv(2, input, filters, strides, padding, data_format, dilations)


def conv3d(
    input: Tensor,
    filters: Tensor,
    strides: WindowLike,
    padding: Padding,
    data_format: str | None = "NDHWC",
    dilations: WindowLike = None,
    name: str | None = None,
) -> Tensor:
    """Convolves volumes `[batch, depth, height, width, channels]`. Source: tf.nn.conv3d."""
    return _conv(3, input, filters, strides, padding, data_format, dilations)


def convolution(
    input: Tensor,
    filters: Tensor,
    strides: WindowLike = None,
    padding: Padding = "VALID",
    data_format: str | None = None,
    dilations: WindowLike = None,
    name: str | None = None,
) -> Tensor:
    """Convolves over as many dimensions as the input has between batch and channels. Source: tf.nn.convolution."""
    # Without batch and channels.
    dims = len(np.shape(input)) - 2
    return _conv(dims, input, filters, 1 if strides is None else strides, padding, data_format, dilations)


def atrous_conv2d(value: Tensor, filters: Tensor, rate: int, padding: Padding, name: str | None = None) -> Tensor:
    """Convolves images with gaps of `rate` between the elements of the filter. Source: tf.nn.atrous_conv2d."""
    # The rate is TensorFlow 1's word for the dilation.
    return _conv(2, value, filters, 1, padding, "NHWC", rate)


def depthwise_conv2d(
    input: Tensor,
    filter: Tensor,
    strides: WindowLike,
    padding: Padding,
    data_format: str | None = None,
    dilations: WindowLike = None,
    name: str | None = None,
) -> Tensor:
    """Convolves each channel by itself. Source: tf.nn.depthwise_conv2d."""
    layout = _layout_of(data_format, 2)
    return _compute(
        keras.ops.depthwise_conv,
        (input, filter),
        strides=_spatial_sizes(strides, 2, layout),
        padding=_check_padding(padding),
        data_format=layout,
        dilation_rate=_spatial_sizes(1 if dilations is None else dilations, 2, layout),
    )


def separable_conv2d(
    input: Tensor,
    depthwise_filter: Tensor,
    pointwise_filter: Tensor,
    strides: WindowLike,
    padding: Padding,
    data_format: str | None = None,
    dilations: WindowLike = None,
    name: str | None = None,
) -> Tensor:
    """Convolves each channel by itself, then mixes channels. Source: tf.nn.separable_conv2d."""
    # Strides belong to the depthwise part; the product with 1 x 1 windows mixes channels.
    inner = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    return _conv(2, inner, pointwise_filter, 1, "VALID", data_format, None)


def conv2d_transpose(
    input: Tensor,
    filters: Tensor,
    output_shape: ShapeLike,
    strides: WindowLike,
    padding: Padding = "SAME",
    data_format: str | None = "NHWC",
    dilations: WindowLike = None,
    name: str | None = None,
) -> Tensor:
    """Convolves backwards, to the shape that a convolution would come from. Source: tf.nn.conv2d_transpose.

    Raises:
        ArgumentError: If `output_shape` is not the one that follows from strides and padding.
    """
    layout = _layout_of(data_format, 2)
    # Known when JAX compiles, as all shapes.
    wanted = tuple(dispatch.to_static(output_shape))
    result = _compute(
        keras.ops.conv_transpose,
        (input, filters),
        strides=_spatial_sizes(strides, 2, layout),
        padding=_check_padding(padding),
        data_format=layout,
        dilation_rate=_spatial_sizes(1 if dilations is None else dilations, 2, layout),
    )
    # Several shapes stride to one input, and TensorFlow's output_shape chooses; keras.ops computes one of them.
    if tuple(result.shape)[1:] != wanted[1:]:
        raise ArgumentError(
            f"output_shape must be {tuple(result.shape)} with these strides and padding. Received: {wanted}."
        )
    return result


def _pooling(tf_name: str, verb: str, function: Callable[..., Tensor], dims: int, default: str) -> Callable[..., Any]:
    """Returns a function of tf.nn that pools windows over `dims` dimensions of space."""

    def pool(
        input: Tensor,
        ksize: WindowLike,
        strides: WindowLike,
        padding: Padding,
        data_format: str = default,
        name: str | None = None,
    ) -> Any:
        return _pool(function, dims, input, ksize, strides, padding, data_format)

    return describe(pool, f"tf.nn.{tf_name}", f"{verb} of windows of {_SPACES[dims]}")


def _any_pooling(tf_name: str, verb: str, function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Returns a function of tf.nn that pools over the dimensions that the input has between batch and channels."""

    def pool(
        input: Tensor,
        ksize: WindowLike,
        strides: WindowLike,
        padding: Padding,
        data_format: str | None = None,
        name: str | None = None,
    ) -> Any:
        return _pool(function, len(np.shape(input)) - 2, input, ksize, strides, padding, data_format)

    return describe(pool, f"tf.nn.{tf_name}", f"{verb} of windows, over the dimensions between batch and channels")


def _pool(
    function: Callable[..., Tensor],
    dims: int,
    x: Tensor,
    ksize: WindowLike,
    strides: WindowLike,
    padding: Padding,
    data_format: str | None,
) -> Any:
    layout = _layout_of(data_format, dims)
    window, steps = _spatial_sizes(ksize, dims, layout), _spatial_sizes(strides, dims, layout)
    return _compute(function, (x,), window, steps, _check_padding(padding), layout)


_SPACES = {1: "sequences", 2: "images", 3: "volumes"}
max_pool1d = _pooling("max_pool1d", "Takes the maximum", keras.ops.max_pool, 1, "NWC")
max_pool2d = _pooling("max_pool2d", "Takes the maximum", keras.ops.max_pool, 2, "NHWC")
max_pool3d = _pooling("max_pool3d", "Takes the maximum", keras.ops.max_pool, 3, "NDHWC")
max_pool = _any_pooling("max_pool", "Takes the maximum", keras.ops.max_pool)
avg_pool1d = _pooling("avg_pool1d", "Takes the mean", keras.ops.average_pool, 1, "NWC")
avg_pool2d = _pooling("avg_pool2d", "Takes the mean", keras.ops.average_pool, 2, "NHWC")
avg_pool3d = _pooling("avg_pool3d", "Takes the mean", keras.ops.average_pool, 3, "NDHWC")
avg_pool = _any_pooling("avg_pool", "Takes the mean", keras.ops.average_pool)


def batch_normalization(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    offset: Tensor,
    scale: Tensor,
    variance_epsilon: float,
    name: str | None = None,
) -> Tensor:
    """Computes (x - mean) / sqrt(variance + epsilon) * scale + offset. Source: tf.nn.batch_normalization."""
    xp, x, m, v, o, s = dispatch.pick(x, mean, variance, offset, scale)
    # One product and one sum for each element, as TensorFlow computes it.
    factor = 1 / xp.sqrt(v + variance_epsilon)
    # TensorFlow takes None for no scale and no offset.
    factor = factor if s is None else factor * s
    shift = -m * factor if o is None else o - m * factor
    return dispatch.give(xp, x * factor + shift)


def local_response_normalization(
    input: Tensor,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    name: str | None = None,
) -> Tensor:
    """Divides by powers of the sums of squares of near channels. Source: tf.nn.local_response_normalization."""
    xp, x = dispatch.pick(input)
    channels = x.shape[-1]
    # The sum over neighbouring channels is a product with a band matrix.
    near = np.abs(np.arange(channels)[:, None] - np.arange(channels)) <= depth_radius
    total = xp.matmul(xp.square(x), near.astype(np.float32))
    return dispatch.give(xp, x / xp.power(bias + alpha * total, beta))


def space_to_depth(input: Tensor, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Tensor:
    """Moves blocks of space into channels. Source: tf.nn.space_to_depth."""
    _check_nhwc(data_format)
    xp, x = dispatch.pick(input)
    n, h, w, c = x.shape
    blocks = xp.reshape(x, (-1 if n is None else n, h // block_size, block_size, w // block_size, block_size, c))
    # Rows of a block, its columns, then channels: TensorFlow's order.
    moved = xp.transpose(blocks, (0, 1, 3, 2, 4, 5))
    return dispatch.give(
        xp, xp.reshape(moved, (-1 if n is None else n, h // block_size, w // block_size, block_size**2 * c))
    )


def depth_to_space(input: Tensor, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Tensor:
    """Moves channels into blocks of space. Source: tf.nn.depth_to_space."""
    _check_nhwc(data_format)
    xp, x = dispatch.pick(input)
    n, h, w, c = x.shape
    n, depth = -1 if n is None else n, c // block_size**2
    # The inverse of space_to_depth: channels hold rows, then columns of a block.
    blocks = xp.reshape(x, (n, h, w, block_size, block_size, depth))
    moved = xp.transpose(blocks, (0, 1, 3, 2, 4, 5))
    return dispatch.give(xp, xp.reshape(moved, (n, h * block_size, w * block_size, depth)))


def _check_nhwc(data_format: str) -> None:
    if data_format != "NHWC":
        raise ArgumentError(
            f'data_format must be "NHWC". Received: {data_format!r}. Use tf.transpose before and after.'
        )


named.record_names(globals())
