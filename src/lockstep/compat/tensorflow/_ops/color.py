"""Functions of images: colours, brightness, types, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.create import cast
from lockstep.compat.tensorflow._ops.elementwise import saturate_cast
from lockstep.compat.tensorflow._ops.images import check_image, to_tensor
from lockstep.errors import ArgumentError

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "convert_image_dtype",
    "grayscale_to_rgb",
    "hsv_to_rgb",
    "per_image_standardization",
    "psnr",
    "random_brightness",
    "random_contrast",
    "random_hue",
    "random_saturation",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "ssim",
    "stateless_random_brightness",
    "stateless_random_contrast",
    "stateless_random_hue",
    "stateless_random_saturation",
]

_GREY = np.array([0.2989, 0.5870, 0.1140], np.float32)


def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Any:
    """Converts to another type and its range: [0, 1) for floating-point numbers, all of it for integers.

    `saturate` limits values to the range before.

    Source: tf.image.convert_image_dtype.
    """
    xp, x = dispatch.pick(image)
    old, new = as_dtype(np.dtype(str(x.dtype))), as_dtype(dtype)
    if old == new:
        return to_tensor(xp, x)
    convert: Callable[[Any, Any], Any] = saturate_cast if saturate else cast
    if old.is_integer and new.is_integer:
        return _between_integers(image, old, new, convert)
    if new.is_integer:
        return convert(dispatch.give(xp, x * np.float32(float(new.max) + 0.5)), new)
    if old.is_integer:
        return dispatch.give(xp, dispatch.array(xp, cast(image, new)) * np.asarray(1.0 / float(old.max), new.dtype))
    return cast(image, new)


def _between_integers(image: Any, old: Any, new: Any, convert: Callable[[Any, Any], Any]) -> Any:
    xp, x = dispatch.pick(image)
    if int(old.max) > int(new.max):
        factor = (int(old.max) + 1) // (int(new.max) + 1)
        return convert(to_tensor(xp, x // np.asarray(factor, x.dtype)), new)
    factor = (int(new.max) + 1) // (int(old.max) + 1)
    wide = dispatch.array(xp, convert(image, new))
    return to_tensor(xp, wide * np.asarray(factor, new.dtype))


def _as_floats(image: Any, change: Callable[[Any, Any], Any]) -> Any:
    """Changes an image as floating-point numbers in [0, 1), and converts it back."""
    xp, x = dispatch.pick(image)
    old = as_dtype(np.dtype(str(x.dtype)))
    floats = dispatch.array(xp, image if old.is_floating else convert_image_dtype(image, float32))
    changed = dispatch.give(xp, change(xp, floats))
    return changed if old.is_floating else convert_image_dtype(changed, old, saturate=True)


def adjust_brightness(image: Any, delta: Any) -> Any:
    """Adds `delta`, of a range of 1, to all pixels. Source: tf.image.adjust_brightness."""
    return _as_floats(image, lambda xp, x: x + dispatch.array(xp, delta))


def adjust_contrast(images: Any, contrast_factor: Any) -> Any:
    """Moves pixels away from the mean of their channel, by a factor. Source: tf.image.adjust_contrast."""
    check_image(images)

    def change(xp: Any, x: Any) -> Any:
        mean = xp.mean(x, axis=(-3, -2), keepdims=True)
        return (x - mean) * dispatch.array(xp, contrast_factor) + mean

    return _as_floats(images, change)


def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Any:
    """Computes gain * x to the power of gamma. Source: tf.image.adjust_gamma."""
    return _as_floats(image, lambda xp, x: gain * x**gamma)


def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Any:
    """Multiplies the saturation. Source: tf.image.adjust_saturation."""

    def change(xp: Any, x: Any) -> Any:
        h, s, v = _to_hsv(xp, x)
        return _to_rgb(xp, h, xp.clip(s * dispatch.array(xp, saturation_factor), 0, 1), v)

    return _as_floats(image, change)


def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Any:
    """Turns the hue by `delta`, of a circle of 1. Source: tf.image.adjust_hue."""

    def change(xp: Any, x: Any) -> Any:
        h, s, v = _to_hsv(xp, x)
        return _to_rgb(xp, xp.mod(h + dispatch.array(xp, delta), 1.0), s, v)

    return _as_floats(image, change)


def _to_hsv(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    if x.shape[-1] != 3:
        raise ArgumentError(f"The image must have 3 channels: red, green, blue. Received shape: {tuple(x.shape)}.")
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    top = xp.max(x, axis=-1)
    spread = top - xp.min(x, axis=-1)
    safe = xp.where(spread == 0, xp.ones_like(spread), spread)
    hue = xp.where(top == r, (g - b) / safe, xp.where(top == g, (b - r) / safe + 2, (r - g) / safe + 4)) / 6
    hue = xp.where(spread == 0, xp.zeros_like(hue), xp.where(hue < 0, hue + 1, hue))
    return hue, xp.where(top > 0, spread / xp.where(top > 0, top, xp.ones_like(top)), xp.zeros_like(top)), top


def _to_rgb(xp: Any, h: Any, s: Any, v: Any) -> Any:
    parts = [
        xp.clip(xp.abs(h * 6 - 3) - 1, 0, 1),
        xp.clip(2 - xp.abs(h * 6 - 2), 0, 1),
        xp.clip(2 - xp.abs(h * 6 - 4), 0, 1),
    ]
    return xp.stack([((p - 1) * s + 1) * v for p in parts], axis=-1)


def rgb_to_hsv(images: Any, name: str | None = None) -> Any:
    """Converts red, green, blue to hue, saturation, value, all in [0, 1]. Source: tf.image.rgb_to_hsv."""
    xp, x = dispatch.pick(images)
    return dispatch.give(xp, xp.stack(_to_hsv(xp, x), axis=-1))


def hsv_to_rgb(images: Any, name: str | None = None) -> Any:
    """Converts hue, saturation, value to red, green, blue, all in [0, 1]. Source: tf.image.hsv_to_rgb."""
    xp, x = dispatch.pick(images)
    return dispatch.give(xp, _to_rgb(xp, x[..., 0], x[..., 1], x[..., 2]))


def rgb_to_grayscale(images: Any, name: str | None = None) -> Any:
    """Converts red, green, blue to one channel of grey. Source: tf.image.rgb_to_grayscale."""
    return _as_floats(images, lambda xp, x: xp.sum(x * _GREY, axis=-1, keepdims=True))


def grayscale_to_rgb(images: Any, name: str | None = None) -> Any:
    """Repeats the one channel three times. Source: tf.image.grayscale_to_rgb."""
    xp, x = dispatch.pick(images)
    if x.shape[-1] != 1:
        raise ArgumentError(f"A grey image must have 1 channel. Received shape: {tuple(x.shape)}.")
    return to_tensor(xp, xp.repeat(x, 3, axis=-1))


def per_image_standardization(image: Any) -> Any:
    """Scales each image to a mean of 0 and a deviation of 1, as float32. Source: tf.image.per_image_standardization."""
    xp, x = check_image(image)
    x = x if as_dtype(np.dtype(str(x.dtype))).is_floating else x.astype("float32")
    count = np.float32(x.shape[-3] * x.shape[-2] * x.shape[-1])
    axes = (-3, -2, -1)
    deviation = xp.maximum(xp.std(x, axis=axes, keepdims=True), 1 / np.sqrt(count))
    return dispatch.give(xp, (x - xp.mean(x, axis=axes, keepdims=True)) / deviation)


def _drawn(low: Any, high: Any, seed: Any) -> Any:
    from lockstep.compat.tensorflow._ops.random import uniform

    return uniform((), low, high, seed=seed)


def _stateless(low: Any, high: Any, seed: Any) -> Any:
    from lockstep.compat.tensorflow._ops.random import stateless_uniform

    return stateless_uniform((), seed, low, high)


def _at_most(name: str, value: float, limit: float) -> None:
    if not 0 <= value <= limit:
        raise ArgumentError(f"{name} must be from 0 to {limit}. Received: {value}.")


def random_brightness(image: Any, max_delta: float, seed: Any = None) -> Any:
    """Adds something from `-max_delta` to `max_delta`. Source: tf.image.random_brightness."""
    _at_most("max_delta", max_delta, np.inf)
    return adjust_brightness(image, _drawn(-max_delta, max_delta, seed))


def random_contrast(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    """Changes the contrast by a factor in a range. Source: tf.image.random_contrast."""
    return adjust_contrast(image, _drawn(lower, upper, seed))


def random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    """Changes the saturation by a factor in a range. Source: tf.image.random_saturation."""
    return adjust_saturation(image, _drawn(lower, upper, seed))


def random_hue(image: Any, max_delta: float, seed: Any = None) -> Any:
    """Turns the hue by something from `-max_delta` to `max_delta`, at most 0.5. Source: tf.image.random_hue."""
    _at_most("max_delta", max_delta, 0.5)
    return adjust_hue(image, _drawn(-max_delta, max_delta, seed))


def stateless_random_brightness(image: Any, max_delta: float, seed: Any) -> Any:
    """As `random_brightness`, by a seed of two integers. Source: tf.image.stateless_random_brightness."""
    return adjust_brightness(image, _stateless(-max_delta, max_delta, seed))


def stateless_random_contrast(image: Any, lower: float, upper: float, seed: Any) -> Any:
    """As `random_contrast`, by a seed of two integers. Source: tf.image.stateless_random_contrast."""
    return adjust_contrast(image, _stateless(lower, upper, seed))


def stateless_random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    """As `random_saturation`, by a seed of two integers. Source: tf.image.stateless_random_saturation."""
    return adjust_saturation(image, _stateless(lower, upper, seed))


def stateless_random_hue(image: Any, max_delta: float, seed: Any) -> Any:
    """As `random_hue`, by a seed of two integers. Source: tf.image.stateless_random_hue."""
    _at_most("max_delta", max_delta, 0.5)
    return adjust_hue(image, _stateless(-max_delta, max_delta, seed))


def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Any:
    """Returns the signal-to-noise ratio of image pairs, in decibels. Source: tf.image.psnr."""
    xp, x, y = dispatch.pick(a, b)
    top = _range(x, max_val)
    x, y = (dispatch.array(xp, convert_image_dtype(dispatch.give(xp, v), float32)) for v in (x, y))
    error = xp.mean(xp.square(x - y), axis=(-3, -2, -1))
    with np.errstate(divide="ignore"):
        return dispatch.give(
            xp, 20 * xp.log(top) / np.float32(np.log(10)) - np.float32(10 / np.log(10)) * xp.log(error)
        )


def _range(x: Any, max_val: Any) -> Any:
    kind = as_dtype(np.dtype(str(x.dtype)))
    return np.float32(max_val) / (np.float32(1) if kind.is_floating else np.float32(kind.max))


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Any:
    """Returns the structural similarity of image pairs, at most 1. Source: tf.image.ssim."""
    from lockstep.compat.tensorflow._ops.windows import depthwise_conv2d

    xp, x, y = dispatch.pick(img1, img2)
    top = _range(x, max_val)
    x, y = (dispatch.array(xp, convert_image_dtype(dispatch.give(xp, v), float32)) for v in (x, y))
    offsets = np.arange(filter_size, dtype=np.float32) - (filter_size - 1) / 2
    weights = np.exp(-np.square(offsets) / (2 * filter_sigma**2))
    kernel = np.outer(weights, weights) / np.sum(np.outer(weights, weights))
    kernel = np.tile(kernel[:, :, None, None], (1, 1, x.shape[-1], 1)).astype(np.float32)

    def smooth(v: Any) -> Any:
        batch = xp.reshape(v, (-1, *v.shape[-3:]))
        found = dispatch.array(xp, depthwise_conv2d(dispatch.give(xp, batch), kernel, [1, 1, 1, 1], "VALID"))
        return xp.reshape(found, (*v.shape[:-3], *found.shape[1:]))

    c1, c2 = (k1 * top) ** 2, (k2 * top) ** 2
    mx, my = smooth(x), smooth(y)
    luminance = (2 * mx * my + c1) / (mx * mx + my * my + c1)
    structure = (2 * smooth(x * y) - 2 * mx * my + c2) / (smooth(x * x + y * y) - mx * mx - my * my + c2)
    return dispatch.give(xp, xp.mean(xp.mean(luminance * structure, axis=(-3, -2)), axis=-1))


named.all_of(globals())
