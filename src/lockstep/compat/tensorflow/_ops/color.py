"""Functions of images: colours, brightness, types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.create import cast
from lockstep.compat.tensorflow._ops.elementwise import saturate_cast
from lockstep.compat.tensorflow._ops.images import check_image
from lockstep.compat.tensorflow._ops.random import stateless_uniform, uniform
from lockstep.compat.tensorflow._types import DTypeLike, Library, Seed
from lockstep.errors import ArgumentError

__all__ = ["adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation"]
__all__ += ["convert_image_dtype", "grayscale_to_rgb", "hsv_to_rgb", "per_image_standardization"]
__all__ += ["random_brightness", "random_contrast", "random_hue", "random_saturation", "rgb_to_grayscale", "rgb_to_hsv"]
__all__ += ["rgb_to_yiq", "rgb_to_yuv", "stateless_random_brightness", "stateless_random_contrast"]
__all__ += ["stateless_random_hue", "stateless_random_saturation", "yiq_to_rgb", "yuv_to_rgb"]

# TensorFlow's weights: ITU-R BT.601, rounded.
_GREY = np.array([0.2989, 0.5870, 0.1140], np.float32)
# By what red, green and blue are multiplied, a row for each of them; and back.
_YIQ = [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]]
_FROM_YIQ = [[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]]
_YUV = [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]]
_FROM_YUV = [[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]]


def convert_image_dtype(image: Tensor, dtype: DTypeLike, saturate: bool = False, name: str | None = None) -> Tensor:
    """Converts to another type and its range: [0, 1) for floating-point numbers, all of it for integers.

    `saturate` limits values to the range before.

    Source: tf.image.convert_image_dtype.
    """
    xp, x = dispatch.pick(image)
    old, new = as_dtype(np.dtype(str(x.dtype))), as_dtype(dtype)
    if old == new:
        return dispatch.give_exact(xp, x)
    convert: Callable[[Any, Any], Any] = saturate_cast if saturate else cast
    if old.is_integer and new.is_integer:
        return _convert_integers(image, old, new, convert)
    # TensorFlow multiplies by the maximum and one half, and truncates: 1.0 gives the maximum.
    if new.is_integer:
        return convert(dispatch.give(xp, x * np.float32(float(new.max) + 0.5)), new)
    if old.is_integer:
        return dispatch.give(xp, dispatch.to_array(xp, cast(image, new)) * np.asarray(1.0 / float(old.max), new.dtype))
    return cast(image, new)


def _convert_integers(image: Tensor, old: DTypeLike, new: DTypeLike, convert: Callable[[Any, Any], Any]) -> Any:
    xp, x = dispatch.pick(image)
    # TensorFlow scales integers by quotients of powers of two: 255 of uint8 is 65280 in uint16, not 65535.
    if int(old.max) > int(new.max):
        factor = (int(old.max) + 1) // (int(new.max) + 1)
        return convert(dispatch.give_exact(xp, x // np.asarray(factor, x.dtype)), new)
    factor = (int(new.max) + 1) // (int(old.max) + 1)
    wide = dispatch.to_array(xp, convert(image, new))
    return dispatch.give_exact(xp, wide * np.asarray(factor, new.dtype))


def _as_floats(image: Tensor, change: Callable[[Any, Any], Any]) -> Any:
    """Changes an image as floating-point numbers in [0, 1), and converts it back."""
    xp, x = dispatch.pick(image)
    old = as_dtype(np.dtype(str(x.dtype)))
    floats = dispatch.to_array(xp, image if old.is_floating else convert_image_dtype(image, float32))
    changed = dispatch.give(xp, change(xp, floats))
    # Saturating: brightness past the maximum must not wrap around to dark.
    return changed if old.is_floating else convert_image_dtype(changed, old, saturate=True)


def adjust_brightness(image: Tensor, delta: Tensor) -> Tensor:
    """Adds `delta`, of a range of 1, to all pixels. Source: tf.image.adjust_brightness."""
    return _as_floats(image, lambda xp, x: x + dispatch.to_array(xp, delta))


def adjust_contrast(images: Tensor, contrast_factor: Tensor) -> Tensor:
    """Moves pixels away from the mean of their channel, by a factor. Source: tf.image.adjust_contrast."""
    check_image(images)

    def change(xp: Library, x: Tensor) -> Any:
        mean = xp.mean(x, axis=(-3, -2), keepdims=True)
        return (x - mean) * dispatch.to_array(xp, contrast_factor) + mean

    return _as_floats(images, change)


def adjust_gamma(image: Tensor, gamma: Tensor = 1, gain: Tensor = 1) -> Tensor:
    """Computes gain * x to the power of gamma. Source: tf.image.adjust_gamma."""
    return _as_floats(image, lambda xp, x: gain * x**gamma)


def adjust_saturation(image: Tensor, saturation_factor: Tensor, name: str | None = None) -> Tensor:
    """Multiplies the saturation. Source: tf.image.adjust_saturation."""

    def change(xp: Library, x: Tensor) -> Any:
        # Through HSV, as TensorFlow's own operation, in float32.
        h, s, v = _to_hsv(xp, x)
        return _to_rgb(xp, h, xp.clip(s * dispatch.to_array(xp, saturation_factor), 0, 1), v)

    return _as_floats(image, change)


def adjust_hue(image: Tensor, delta: Tensor, name: str | None = None) -> Tensor:
    """Turns the hue by `delta`, of a circle of 1. Source: tf.image.adjust_hue."""

    def change(xp: Library, x: Tensor) -> Any:
        h, s, v = _to_hsv(xp, x)
        return _to_rgb(xp, xp.mod(h + dispatch.to_array(xp, delta), 1.0), s, v)

    return _as_floats(image, change)


def _to_hsv(xp: Library, x: Tensor) -> tuple[Any, Any, Any]:
    if x.shape[-1] != 3:
        raise ArgumentError(f"The image must have 3 channels: red, green, blue. Received shape: {tuple(x.shape)}.")
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    top = xp.max(x, axis=-1)
    spread = top - xp.min(x, axis=-1)
    # A grey pixel has no hue; TensorFlow gives 0. Division by 0 in the branch not taken would make the gradient NaN.
    safe = xp.where(spread == 0, xp.ones_like(spread), spread)
    hue = xp.where(top == r, (g - b) / safe, xp.where(top == g, (b - r) / safe + 2, (r - g) / safe + 4)) / 6
    hue = xp.where(spread == 0, xp.zeros_like(hue), xp.where(hue < 0, hue + 1, hue))
    return hue, xp.where(top > 0, spread / xp.where(top > 0, top, xp.ones_like(top)), xp.zeros_like(top)), top


def _to_rgb(xp: Library, h: Tensor, s: Tensor, v: Tensor) -> Any:
    parts = [
        xp.clip(xp.abs(h * 6 - 3) - 1, 0, 1),
        xp.clip(2 - xp.abs(h * 6 - 2), 0, 1),
        xp.clip(2 - xp.abs(h * 6 - 4), 0, 1),
    ]
    return xp.stack([((p - 1) * s + 1) * v for p in parts], axis=-1)


def rgb_to_hsv(images: Tensor, name: str | None = None) -> Tensor:
    """Converts red, green, blue to hue, saturation, value, all in [0, 1]. Source: tf.image.rgb_to_hsv."""
    xp, x = dispatch.pick(images)
    return dispatch.give(xp, xp.stack(_to_hsv(xp, x), axis=-1))


def hsv_to_rgb(images: Tensor, name: str | None = None) -> Tensor:
    """Converts hue, saturation, value to red, green, blue, all in [0, 1]. Source: tf.image.hsv_to_rgb."""
    xp, x = dispatch.pick(images)
    return dispatch.give(xp, _to_rgb(xp, x[..., 0], x[..., 1], x[..., 2]))


def _mix(images: Tensor, weights: Any) -> Any:
    xp, x = dispatch.pick(images)
    if x.shape[-1] != 3:
        raise ArgumentError(f"The image must have 3 channels. Received shape: {tuple(x.shape)}.")
    return dispatch.give(xp, xp.matmul(x, xp.asarray(np.asarray(weights, np.float32), x.dtype)))


def rgb_to_yiq(images: Tensor) -> Tensor:
    """Converts red, green, blue to luma and two of chroma (NTSC). Source: tf.image.rgb_to_yiq."""
    return _mix(images, _YIQ)


def yiq_to_rgb(images: Tensor) -> Tensor:
    """Undoes `rgb_to_yiq`. Source: tf.image.yiq_to_rgb."""
    return _mix(images, _FROM_YIQ)


def rgb_to_yuv(images: Tensor) -> Tensor:
    """Converts red, green, blue to luma and two of chroma (PAL). Source: tf.image.rgb_to_yuv."""
    return _mix(images, _YUV)


def yuv_to_rgb(images: Tensor) -> Tensor:
    """Undoes `rgb_to_yuv`. Source: tf.image.yuv_to_rgb."""
    return _mix(images, _FROM_YUV)


def rgb_to_grayscale(images: Tensor, name: str | None = None) -> Tensor:
    """Converts red, green, blue to one channel of grey. Source: tf.image.rgb_to_grayscale."""
    return _as_floats(images, lambda xp, x: xp.sum(x * _GREY, axis=-1, keepdims=True))


def grayscale_to_rgb(images: Tensor, name: str | None = None) -> Tensor:
    """Repeats the one channel three times. Source: tf.image.grayscale_to_rgb."""
    xp, x = dispatch.pick(images)
    if x.shape[-1] != 1:
        raise ArgumentError(f"A grey image must have 1 channel. Received shape: {tuple(x.shape)}.")
    return dispatch.give_exact(xp, xp.repeat(x, 3, axis=-1))


def per_image_standardization(image: Tensor) -> Tensor:
    """Scales each image to a mean of 0 and a deviation of 1, as float32. Source: tf.image.per_image_standardization."""
    xp, x = check_image(image)
    x = x if as_dtype(np.dtype(str(x.dtype))).is_floating else x.astype("float32")
    count = np.float32(x.shape[-3] * x.shape[-2] * x.shape[-1])
    axes = (-3, -2, -1)
    # TensorFlow's lower bound, against division by 0 in uniform images.
    deviation = xp.maximum(xp.std(x, axis=axes, keepdims=True), 1 / np.sqrt(count))
    return dispatch.give(xp, (x - xp.mean(x, axis=axes, keepdims=True)) / deviation)


def _check_range(name: str, value: float, limit: float) -> None:
    if not 0 <= value <= limit:
        raise ArgumentError(f"{name} must be from 0 to {limit}. Received: {value}.")


# One number for all images of a batch, as in TensorFlow.
def random_brightness(image: Tensor, max_delta: float, seed: Seed = None) -> Tensor:
    """Adds something from `-max_delta` to `max_delta`. Source: tf.image.random_brightness."""
    _check_range("max_delta", max_delta, np.inf)
    return adjust_brightness(image, uniform((), -max_delta, max_delta, seed=seed))


def random_contrast(image: Tensor, lower: float, upper: float, seed: Seed = None) -> Tensor:
    """Changes the contrast by a factor in a range. Source: tf.image.random_contrast."""
    return adjust_contrast(image, uniform((), lower, upper, seed=seed))


def random_saturation(image: Tensor, lower: float, upper: float, seed: Seed = None) -> Tensor:
    """Changes the saturation by a factor in a range. Source: tf.image.random_saturation."""
    return adjust_saturation(image, uniform((), lower, upper, seed=seed))


def random_hue(image: Tensor, max_delta: float, seed: Seed = None) -> Tensor:
    """Turns the hue by something from `-max_delta` to `max_delta`, at most 0.5. Source: tf.image.random_hue."""
    _check_range("max_delta", max_delta, 0.5)
    return adjust_hue(image, uniform((), -max_delta, max_delta, seed=seed))


def stateless_random_brightness(image: Tensor, max_delta: float, seed: Seed) -> Tensor:
    """Changes the brightness by a seed of two integers. Source: tf.image.stateless_random_brightness."""
    return adjust_brightness(image, stateless_uniform((), seed, -max_delta, max_delta))


def stateless_random_contrast(image: Tensor, lower: float, upper: float, seed: Seed) -> Tensor:
    """Changes the contrast by a seed of two integers. Source: tf.image.stateless_random_contrast."""
    return adjust_contrast(image, stateless_uniform((), seed, lower, upper))


def stateless_random_saturation(image: Tensor, lower: float, upper: float, seed: Seed = None) -> Tensor:
    """Changes the saturation by a seed of two integers. Source: tf.image.stateless_random_saturation."""
    return adjust_saturation(image, stateless_uniform((), seed, lower, upper))


def stateless_random_hue(image: Tensor, max_delta: float, seed: Seed) -> Tensor:
    """Turns the hue by a seed of two integers. Source: tf.image.stateless_random_hue."""
    _check_range("max_delta", max_delta, 0.5)
    return adjust_hue(image, stateless_uniform((), seed, -max_delta, max_delta))


named.record_names(globals())
