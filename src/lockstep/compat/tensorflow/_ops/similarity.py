"""Measures of how alike images are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.color import convert_image_dtype
from lockstep.compat.tensorflow._ops.windows import depthwise_conv2d
from lockstep.compat.tensorflow._types import Library
from lockstep.errors import ArgumentError

__all__ = ["psnr", "ssim", "ssim_multiscale"]

# Wang et al. 2003: how much each scale counts.
_SCALES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


def psnr(a: Tensor, b: Tensor, max_val: Tensor, name: str | None = None) -> Tensor:
    """Returns the signal-to-noise ratio of image pairs, in decibels. Source: tf.image.psnr."""
    xp, x, y = dispatch.pick(a, b)
    top = _value_range(x, max_val)
    x, y = (dispatch.to_array(xp, convert_image_dtype(dispatch.give(xp, v), float32)) for v in (x, y))
    error = xp.mean(xp.square(x - y), axis=(-3, -2, -1))
    # Equal images have no error: their ratio is infinite, without a warning.
    with np.errstate(divide="ignore"):
        return dispatch.give(
            xp, 20 * xp.log(top) / np.float32(np.log(10)) - np.float32(10 / np.log(10)) * xp.log(error)
        )


def _value_range(x: Tensor, max_val: Tensor) -> Any:
    kind = as_dtype(np.dtype(str(x.dtype)))
    # max_val is in the images' own type; they are compared as floats in [0, 1].
    return np.float32(max_val) / (np.float32(1) if kind.is_floating else np.float32(kind.max))


def ssim(
    img1: Tensor,
    img2: Tensor,
    max_val: Tensor,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> Tensor:
    """Returns the structural similarity of image pairs, at most 1, or with `return_index_map` of each place.

    Source: tf.image.ssim.
    """
    xp, x, y, top = _as_pair(img1, img2, max_val)
    alike, _ = _similarity(xp, x, y, top, filter_size, filter_sigma, k1, k2)
    if return_index_map:
        return dispatch.give(xp, xp.mean(alike, axis=-1))
    return dispatch.give(xp, xp.mean(xp.mean(alike, axis=(-3, -2)), axis=-1))


def ssim_multiscale(
    img1: Tensor,
    img2: Tensor,
    max_val: Tensor,
    power_factors: Sequence[float] = _SCALES,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:
    """Returns the structural similarity of image pairs over several scales, each half of the last one.

    Args:
        img1: Images `[..., height, width, channels]`.
        img2: The same.
        max_val: The greatest value that a pixel can have.
        power_factors: How much each scale counts, as the exponent of its similarity.
        filter_size: The window, in pixels of each scale.
        filter_sigma: Its Gaussian.
        k1: Constant against division by small numbers.
        k2: The same.

    Raises:
        ArgumentError: If the images are too small for the window at the last scale.

    Source: tf.image.ssim_multiscale.
    """
    xp, x, y, top = _as_pair(img1, img2, max_val)
    smallest = min(x.shape[-3:-1]) >> (len(power_factors) - 1)
    if smallest < filter_size:
        raise ArgumentError(
            f"Images must have at least {filter_size} pixels at the last of {len(power_factors)} scales. Received: "
            f"{smallest}. Pass a smaller filter_size or fewer power_factors."
        )
    result: Any = 1
    for number, power in enumerate(power_factors):
        if number:
            x, y = _halve(xp, x), _halve(xp, y)
        alike, structure = _similarity(xp, x, y, top, filter_size, filter_sigma, k1, k2)
        part = alike if number == len(power_factors) - 1 else structure
        # TensorFlow drops what is below zero, of which there is no power.
        result = result * xp.power(xp.maximum(xp.mean(part, axis=(-3, -2)), 0), power)
    return dispatch.give(xp, xp.mean(result, axis=-1))


def _halve(xp: Library, x: Tensor) -> Any:
    height, width = x.shape[-3:-1]
    around = [(0, 0)] * (len(x.shape) - 3) + [(0, height % 2), (0, width % 2), (0, 0)]
    x = xp.pad(x, around, mode="symmetric")
    return (x[..., ::2, ::2, :] + x[..., 1::2, ::2, :] + x[..., ::2, 1::2, :] + x[..., 1::2, 1::2, :]) / 4


def _as_pair(img1: Tensor, img2: Tensor, max_val: Tensor) -> tuple[Any, Any, Any, Any]:
    xp, x, y = dispatch.pick(img1, img2)
    top = _value_range(x, max_val)
    x, y = (dispatch.to_array(xp, convert_image_dtype(dispatch.give(xp, v), float32)) for v in (x, y))
    return xp, x, y, top


def _similarity(
    xp: Library, x: Tensor, y: Tensor, top: Any, filter_size: int, filter_sigma: float, k1: float, k2: float
) -> tuple[Any, Any]:
    """Returns the similarity at each place and channel, and its part of contrast and structure."""
    # The Gaussian window of Wang et al. 2004, which TensorFlow takes for each channel.
    offsets = np.arange(filter_size, dtype=np.float32) - (filter_size - 1) / 2
    weights = np.exp(-np.square(offsets) / (2 * filter_sigma**2))
    kernel = np.outer(weights, weights) / np.sum(np.outer(weights, weights))
    # Each channel is smoothed by itself.
    kernel = np.tile(kernel[:, :, None, None], (1, 1, x.shape[-1], 1)).astype(np.float32)

    def smooth(v: Tensor) -> Any:
        batch = xp.reshape(v, (-1, *v.shape[-3:]))
        smoothed = dispatch.to_array(xp, depthwise_conv2d(dispatch.give(xp, batch), kernel, [1, 1, 1, 1], "VALID"))
        return xp.reshape(smoothed, (*v.shape[:-3], *smoothed.shape[1:]))

    # Wang et al. 2004: constants against division by small numbers.
    c1, c2 = (k1 * top) ** 2, (k2 * top) ** 2
    mx, my = smooth(x), smooth(y)
    luminance = (2 * mx * my + c1) / (mx * mx + my * my + c1)
    structure = (2 * smooth(x * y) - 2 * mx * my + c2) / (smooth(x * x + y * y) - mx * mx - my * my + c2)
    return luminance * structure, structure


named.record_names(globals())
