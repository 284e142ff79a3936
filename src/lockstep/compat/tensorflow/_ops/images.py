"""Functions of images `[height, width, channels]`, or batches of them: geometry."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lockstep.compat.tensorflow._bound import on_host
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.errors import ArgumentError

__all__ = [
    "central_crop",
    "crop_to_bounding_box",
    "flip_left_right",
    "flip_up_down",
    "image_gradients",
    "pad_to_bounding_box",
    "random_crop",
    "random_flip_left_right",
    "random_flip_up_down",
    "resize_with_crop_or_pad",
    "resize_with_pad",
    "rot90",
    "stateless_random_crop",
    "stateless_random_flip_left_right",
    "stateless_random_flip_up_down",
    "total_variation",
    "transpose",
]


def check_image(image: Any) -> Any:
    """Returns the library, and the image as its array; raises `ArgumentError` unless it has 3 or 4 dimensions."""
    xp, x = dispatch.pick(image)
    if len(x.shape) not in (3, 4):
        raise ArgumentError(
            f"An image must have the shape [height, width, channels], a batch one more. Received: {tuple(x.shape)}."
        )
    return xp, x


def to_tensor(xp: Any, value: Any) -> Any:
    """A result whose elements were moved, not computed with."""
    return as_host(value) if xp is dispatch.HOST else value


def flip_left_right(image: Any) -> Any:
    """Mirrors left and right. Source: tf.image.flip_left_right."""
    xp, x = check_image(image)
    return to_tensor(xp, xp.flip(x, -2))


def flip_up_down(image: Any) -> Any:
    """Mirrors top and bottom. Source: tf.image.flip_up_down."""
    xp, x = check_image(image)
    return to_tensor(xp, xp.flip(x, -3))


def rot90(image: Any, k: Any = 1, name: str | None = None) -> Any:
    """Turns by `k` times 90 degrees, counter-clockwise. Source: tf.image.rot90."""
    xp, x = check_image(image)
    return to_tensor(xp, xp.rot90(x, dispatch.static(k), (-3, -2)))


def transpose(image: Any, name: str | None = None) -> Any:
    """Exchanges height and width. Source: tf.image.transpose."""
    xp, x = check_image(image)
    return to_tensor(xp, xp.swapaxes(x, -3, -2))


def _tossed(image: Any, toss: Any, flipped: Any) -> Any:
    """The flipped image where the coin (or that of each image of a batch) says so."""
    xp, x, coin = dispatch.pick(image, toss)
    coin = xp.reshape(coin, (-1, 1, 1, 1)) if len(x.shape) == 4 else coin
    return to_tensor(xp, xp.where(coin < 0.5, dispatch.array(xp, flipped), x))


def _coins(image: Any) -> Any:
    shape = tuple(dispatch.pick(image)[1].shape)
    return () if len(shape) == 3 else (shape[0],)


def random_flip_left_right(image: Any, seed: Any = None) -> Any:
    """Mirrors left and right with a probability of one half, each image for itself.

    Source: tf.image.random_flip_left_right.
    """
    from lockstep.compat.tensorflow._ops.random import uniform

    return _tossed(image, uniform(_coins(image), seed=seed), flip_left_right(image))


def random_flip_up_down(image: Any, seed: Any = None) -> Any:
    """Mirrors top and bottom with a probability of one half, each image for itself.

    Source: tf.image.random_flip_up_down.
    """
    from lockstep.compat.tensorflow._ops.random import uniform

    return _tossed(image, uniform(_coins(image), seed=seed), flip_up_down(image))


def stateless_random_flip_left_right(image: Any, seed: Any) -> Any:
    """As `random_flip_left_right`, by a seed of two integers. Source: tf.image.stateless_random_flip_left_right."""
    from lockstep.compat.tensorflow._ops.random import stateless_uniform

    return _tossed(image, stateless_uniform(_coins(image), seed), flip_left_right(image))


def stateless_random_flip_up_down(image: Any, seed: Any) -> Any:
    """As `random_flip_up_down`, by a seed of two integers. Source: tf.image.stateless_random_flip_up_down."""
    from lockstep.compat.tensorflow._ops.random import stateless_uniform

    return _tossed(image, stateless_uniform(_coins(image), seed), flip_up_down(image))


def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Any:
    """Cuts a box out. Source: tf.image.crop_to_bounding_box."""
    xp, x = check_image(image)
    top, left, height, width = map(dispatch.static, (offset_height, offset_width, target_height, target_width))
    if min(top, left) < 0 or min(height, width) < 1 or top + height > x.shape[-3] or left + width > x.shape[-2]:
        raise ArgumentError(
            f"The box must lie in the image, of height {x.shape[-3]} and width {x.shape[-2]}. "
            f"Received: offset {top}, {left}, "
            f"size {height}, {width}."
        )
    return to_tensor(xp, x[..., top : top + height, left : left + width, :])


def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Any:
    """Puts an image into a larger one of zeros. Source: tf.image.pad_to_bounding_box."""
    xp, x = check_image(image)
    top, left, height, width = map(dispatch.static, (offset_height, offset_width, target_height, target_width))
    below, right = height - top - x.shape[-3], width - left - x.shape[-2]
    if min(top, left, below, right) < 0:
        raise ArgumentError(
            f"The image, of height {x.shape[-3]} and width {x.shape[-2]}, must fit into {height} x "
            f"{width} at {top}, {left}."
        )
    around = [(0, 0)] * (len(x.shape) - 3) + [(top, below), (left, right), (0, 0)]
    return to_tensor(xp, xp.pad(x, around))


def resize_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Any:
    """Cuts the middle out, or adds zeros around, to reach a size. Source: tf.image.resize_with_crop_or_pad."""
    _, x = check_image(image)
    height, width = dispatch.static(target_height), dispatch.static(target_width)
    cut_h, cut_w = min(height, x.shape[-3]), min(width, x.shape[-2])
    cropped = crop_to_bounding_box(image, (x.shape[-3] - cut_h) // 2, (x.shape[-2] - cut_w) // 2, cut_h, cut_w)
    return pad_to_bounding_box(cropped, (height - cut_h) // 2, (width - cut_w) // 2, height, width)


def resize_with_pad(
    image: Any, target_height: Any, target_width: Any, method: Any = "bilinear", antialias: bool = False
) -> Any:
    """Resizes to fit into a size, with the same proportions, and adds zeros.

    Source: tf.image.resize_with_pad.
    """
    resize = on_host("resize")
    _, x = check_image(image)
    height, width = dispatch.static(target_height), dispatch.static(target_width)
    ratio = max(x.shape[-2] / width, x.shape[-3] / height)
    size = int(x.shape[-3] / ratio), int(x.shape[-2] / ratio)
    resized = resize(image, size, method=method, antialias=antialias)
    return pad_to_bounding_box(resized, (height - size[0]) // 2, (width - size[1]) // 2, height, width)


def central_crop(image: Any, central_fraction: float) -> Any:
    """Cuts the middle out, so much of the height and the width. Source: tf.image.central_crop."""
    if not 0 < central_fraction <= 1:
        raise ArgumentError(f"central_fraction must be greater than 0 and at most 1. Received: {central_fraction}.")
    _, x = check_image(image)
    top, left = (int((s - s * central_fraction) / 2) for s in (x.shape[-3], x.shape[-2]))
    return crop_to_bounding_box(image, top, left, x.shape[-3] - 2 * top, x.shape[-2] - 2 * left)


def _cropped(value: Any, size: Any, draw: Any) -> Any:
    xp, x = dispatch.pick(value)
    sizes = tuple(x.shape[i] if s == -1 else s for i, s in enumerate(dispatch.static(size)))
    room = [total - s for total, s in zip(x.shape, sizes, strict=True)]
    if min(room) < 0:
        raise ArgumentError(f"The crop must be no larger than the image, {tuple(x.shape)}. Received: {sizes}.")
    starts = [draw(i, r + 1) for i, r in enumerate(room)]
    if xp is dispatch.HOST and dispatch.library(*starts) is dispatch.HOST:
        at = [int(s) for s in starts]
        return to_tensor(xp, x[tuple(slice(a, a + s) for a, s in zip(at, sizes, strict=True))])
    return jax.lax.dynamic_slice(x, [dispatch.array(dispatch.DEVICE, s) for s in starts], sizes)


def random_crop(value: Any, size: Any, seed: Any = None, name: str | None = None) -> Any:
    """Cuts a block of `size` (-1: all) out, anywhere. Source: tf.image.random_crop."""
    from lockstep.compat.tensorflow._ops.random import uniform

    return _cropped(value, size, lambda i, n: uniform((), 0, n, np.int32, seed))


def stateless_random_crop(value: Any, size: Any, seed: Any, name: str | None = None) -> Any:
    """Cuts a block of `size` out, by a seed of two integers. Source: tf.image.stateless_random_crop."""
    from lockstep.compat.tensorflow._ops.random import stateless_uniform

    xp, words = dispatch.pick(seed)
    return _cropped(value, size, lambda i, n: stateless_uniform((), dispatch.give(xp, words + i), 0, n, np.int32))


def image_gradients(image: Any) -> tuple[Any, Any]:
    """Returns differences to the next pixel below, and to the right. Source: tf.image.image_gradients."""
    xp, x = check_image(image)
    down = xp.pad(x[:, 1:] - x[:, :-1], [(0, 0), (0, 1), (0, 0), (0, 0)])
    right = xp.pad(x[:, :, 1:] - x[:, :, :-1], [(0, 0), (0, 0), (0, 1), (0, 0)])
    return dispatch.give(xp, down), dispatch.give(xp, right)


def total_variation(images: Any, name: str | None = None) -> Any:
    """Adds the absolute differences of neighbouring pixels up, for each image. Source: tf.image.total_variation."""
    xp, x = check_image(images)
    down = xp.sum(xp.abs(x[..., 1:, :, :] - x[..., :-1, :, :]), axis=(-3, -2, -1))
    right = xp.sum(xp.abs(x[..., 1:, :] - x[..., :-1, :]), axis=(-3, -2, -1))
    return dispatch.give(xp, down + right)


named.all_of(globals())
