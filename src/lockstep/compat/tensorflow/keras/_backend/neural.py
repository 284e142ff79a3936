"""Activations, losses and layers' arithmetic of Keras 2's backend."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from lockstep._types import Tensor
from lockstep.compat.tensorflow._types import AxisLike, WindowLike

__all__ = ["batch_normalization", "bias_add", "binary_crossentropy", "categorical_crossentropy", "conv1d", "conv2d"]
__all__ += ["conv3d", "depthwise_conv2d", "elu", "hard_sigmoid", "in_top_k", "pool2d", "pool3d", "relu"]
__all__ += ["separable_conv2d", "softmax", "sparse_categorical_crossentropy"]


def relu(x: Tensor, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Any:
    """Returns `x` above the threshold, `alpha * (x - threshold)` below, and at most `max_value`."""
    return keras.activations.relu(x, negative_slope=alpha, max_value=max_value, threshold=threshold)


def elu(x: Tensor, alpha: float = 1.0) -> Any:
    """Returns `x`, or `alpha * (exp(x) - 1)` where `x` is negative."""
    return ops.elu(x, alpha=alpha)


def hard_sigmoid(x: Tensor) -> Any:
    """Returns `0.2 * x + 0.5`, limited to 0..1. Keras 3's own has another slope."""
    # Keras 2's slope; Keras 3 has 1/6.
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def softmax(x: Tensor, axis: AxisLike = -1) -> Any:
    """Returns probabilities along an axis."""
    # Through the activation, whose logits crossentropies find.
    return keras.activations.softmax(x, axis=axis)


def binary_crossentropy(target: Tensor, output: Tensor, from_logits: bool = False) -> Any:
    """Returns the cross entropy of each value, of the shape of `target`."""
    return ops.binary_crossentropy(target, output, from_logits=from_logits)


def categorical_crossentropy(target: Tensor, output: Tensor, from_logits: bool = False, axis: int = -1) -> Any:
    """Returns the cross entropy of each example, without the axis of the classes."""
    return ops.categorical_crossentropy(target, output, from_logits=from_logits, axis=axis)


def sparse_categorical_crossentropy(
    target: Tensor, output: Tensor, from_logits: bool = False, axis: int = -1, ignore_class: int | None = None
) -> Any:
    """Returns the cross entropy of each example, whose target is the number of its class."""
    # keras.ops has no ignore_class.
    return keras.losses.sparse_categorical_crossentropy(
        target, output, from_logits=from_logits, axis=axis, ignore_class=ignore_class
    )


def in_top_k(predictions: Tensor, targets: Tensor, k: int) -> Any:
    """Returns whether each target is among the `k` most probable classes."""
    return ops.in_top_k(targets, predictions, k)


def bias_add(x: Tensor, bias: Tensor, data_format: str | None = None) -> Any:
    """Adds one value for each channel, or one for each place and channel."""
    rank = len(x.shape)
    # Keras 2 asks the process's default.
    first = (data_format or keras.config.image_data_format()) == "channels_first" and rank > 2
    shape = tuple(bias.shape)
    if len(shape) == 1:
        # One value for each channel, in either layout.
        shape = shape + (1,) * (rank - 2) if first else shape
    elif first:
        bias, shape = ops.moveaxis(bias, -1, 0), (shape[-1], *shape[:-1])
    return x + ops.reshape(bias, (1, *shape) if len(shape) == rank - 1 else shape)


def batch_normalization(
    x: Tensor, mean: Tensor, var: Tensor, beta: Tensor, gamma: Tensor, axis: int = -1, epsilon: float = 1e-3
) -> Any:
    """Normalises with given statistics."""
    # keras.ops takes statistics of one axis; others broadcast.
    if len(getattr(mean, "shape", ())) == 1:
        return ops.batch_normalization(x, mean, var, axis, offset=beta, scale=gamma, epsilon=epsilon)
    # Statistics that broadcast, of several axes.
    scaled = (x - mean) * ops.rsqrt(var + epsilon)
    scaled = scaled if gamma is None else scaled * gamma
    return scaled if beta is None else scaled + beta


def conv1d(
    x: Tensor,
    kernel: Tensor,
    strides: int = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: int = 1,
) -> Any:
    """Convolves (batch, time, channels); `"causal"` padding looks only back."""
    if padding == "causal":
        # keras.ops.conv knows "same" and "valid" alone.
        before = dilation_rate * (kernel.shape[0] - 1)
        last = (data_format or keras.config.image_data_format()) == "channels_last"
        x = ops.pad(x, [[0, 0], [before, 0], [0, 0]] if last else [[0, 0], [0, 0], [before, 0]])
        padding = "valid"
    return ops.conv(x, kernel, strides, padding, data_format, dilation_rate)


def conv2d(
    x: Tensor,
    kernel: Tensor,
    strides: WindowLike = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: WindowLike = (1, 1),
) -> Any:
    """Convolves pictures."""
    return ops.conv(x, kernel, strides, padding, data_format, dilation_rate)


def conv3d(
    x: Tensor,
    kernel: Tensor,
    strides: WindowLike = (1, 1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: WindowLike = (1, 1, 1),
) -> Any:
    """Convolves volumes."""
    return ops.conv(x, kernel, strides, padding, data_format, dilation_rate)


def depthwise_conv2d(
    x: Tensor,
    depthwise_kernel: Tensor,
    strides: WindowLike = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: WindowLike = (1, 1),
) -> Any:
    """Convolves each channel of pictures by itself."""
    return ops.depthwise_conv(x, depthwise_kernel, strides, padding, data_format, dilation_rate)


def separable_conv2d(
    x: Tensor,
    depthwise_kernel: Tensor,
    pointwise_kernel: Tensor,
    strides: WindowLike = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: WindowLike = (1, 1),
) -> Any:
    """Convolves each channel of pictures by itself, and mixes the channels."""
    return ops.separable_conv(x, depthwise_kernel, pointwise_kernel, strides, padding, data_format, dilation_rate)


def pool2d(
    x: Tensor,
    pool_size: WindowLike,
    strides: WindowLike = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    pool_mode: str = "max",
) -> Any:
    """Takes the greatest value (`"max"`) or the mean (`"avg"`) of windows of pictures."""
    pool = {"max": ops.max_pool, "avg": ops.average_pool}[pool_mode]
    return pool(x, pool_size, strides, padding, data_format)


def pool3d(
    x: Tensor,
    pool_size: WindowLike,
    strides: WindowLike = (1, 1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    pool_mode: str = "max",
) -> Any:
    """Takes the greatest value (`"max"`) or the mean (`"avg"`) of windows of volumes."""
    return pool2d(x, pool_size, strides, padding, data_format, pool_mode)
