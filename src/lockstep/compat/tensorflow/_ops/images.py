"""Functions of images `[height, width, channels]`, or batches of them: geometry."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._forward import find_in_data
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.random import stateless_uniform, uniform
from lockstep.compat.tensorflow._types import Seed, ShapeLike, SizeLike
from lockstep.errors import ArgumentError

__all__ = ["central_crop", "crop_to_bounding_box", "flip_left_right", "flip_up_down", "image_gradients"]
__all__ += ["pad_to_bounding_box", "random_crop", "random_flip_left_right", "random_flip_up_down"]
__all__ += ["resize_with_crop_or_pad", "resize_with_pad", "rot90", "stateless_random_crop"]
__all__ += ["stateless_random_flip_left_right", "stateless_random_flip_up_down", "total_variation", "transpose"]


def check_image(image: Tensor) -> Any:
    """Returns the library, and the image as its array; raises `ArgumentError` unless it has 3 or 4 dimensions."""
    xp, x = dispatch.pick(image)
    # TensorFlow's rule for all functions of this module.
    if len(x.shape) not in (3, 4):
        raise ArgumentError(
            f"An image must have the shape [height, width, channels], a batch one more. Received: {tuple(x.shape)}."
        )
    return xp, x


def flip_left_right(image: Tensor) -> Tensor:
    """Mirrors left and right. Source: tf.image.flip_left_right."""
    xp, x = check_image(image)
    return dispatch.give_exact(xp, xp.flip(x, -2))


def flip_up_down(image: Tensor) -> Tensor:
    """Mirrors top and bottom. Source: tf.image.flip_up_down."""
    xp, x = check_image(image)
    return dispatch.give_exact(xp, xp.flip(x, -3))


def rot90(image: Tensor, k: SizeLike = 1, name: str | None = None) -> Tensor:
    """Turns by `k` times 90 degrees, counter-clockwise. Source: tf.image.rot90."""
    xp, x = check_image(image)
    return dispatch.give_exact(xp, xp.rot90(x, dispatch.to_static(k), (-3, -2)))


def transpose(image: Tensor, name: str | None = None) -> Tensor:
    """Exchanges height and width. Source: tf.image.transpose."""
    xp, x = check_image(image)
    return dispatch.give_exact(xp, xp.swapaxes(x, -3, -2))


def _flip_by_coin(image: Tensor, toss: Tensor, flipped: Tensor) -> Any:
    """Returns the flipped image where the coin is below one half; a batch has one for each image."""
    xp, x, coin = dispatch.pick(image, toss)
    # One coin for all pixels of an image.
    coin = xp.reshape(coin, (-1, 1, 1, 1)) if len(x.shape) == 4 else coin
    return dispatch.give_exact(xp, xp.where(coin < 0.5, dispatch.to_array(xp, flipped), x))


def _draw_shape(image: Tensor) -> Any:
    shape = tuple(dispatch.pick(image)[1].shape)
    # A batch tosses a coin for each image, as TensorFlow does.
    return () if len(shape) == 3 else (shape[0],)


def random_flip_left_right(image: Tensor, seed: Seed = None) -> Tensor:
    """Mirrors left and right with a probability of one half, each image for itself.

    Source: tf.image.random_flip_left_right.
    """
    return _flip_by_coin(image, uniform(_draw_shape(image), seed=seed), flip_left_right(image))


def random_flip_up_down(image: Tensor, seed: Seed = None) -> Tensor:
    """Mirrors top and bottom with a probability of one half, each image for itself.

    Source: tf.image.random_flip_up_down.
    """
    return _flip_by_coin(image, uniform(_draw_shape(image), seed=seed), flip_up_down(image))


def stateless_random_flip_left_right(image: Tensor, seed: Seed) -> Tensor:
    """Mirrors left and right at random, by a seed of two integers.

    Source: tf.image.stateless_random_flip_left_right.
    """
    return _flip_by_coin(image, stateless_uniform(_draw_shape(image), seed), flip_left_right(image))


def stateless_random_flip_up_down(image: Tensor, seed: Seed) -> Tensor:
    """Mirrors top and bottom at random, by a seed of two integers. Source: tf.image.stateless_random_flip_up_down."""
    return _flip_by_coin(image, stateless_uniform(_draw_shape(image), seed), flip_up_down(image))


def crop_to_bounding_box(
    image: Tensor, offset_height: SizeLike, offset_width: SizeLike, target_height: SizeLike, target_width: SizeLike
) -> Tensor:
    """Cuts a box out. Source: tf.image.crop_to_bounding_box."""
    xp, x = check_image(image)
    top, left, height, width = map(dispatch.to_static, (offset_height, offset_width, target_height, target_width))
    if min(top, left) < 0 or min(height, width) < 1 or top + height > x.shape[-3] or left + width > x.shape[-2]:
        raise ArgumentError(
            f"The box must lie in the image, of height {x.shape[-3]} and width {x.shape[-2]}. "
            f"Received: offset {top}, {left}, "
            f"size {height}, {width}."
        )
    return dispatch.give_exact(xp, x[..., top : top + height, left : left + width, :])


def pad_to_bounding_box(
    image: Tensor, offset_height: SizeLike, offset_width: SizeLike, target_height: SizeLike, target_width: SizeLike
) -> Tensor:
    """Puts an image into a larger one of zeros. Source: tf.image.pad_to_bounding_box."""
    xp, x = check_image(image)
    top, left, height, width = map(dispatch.to_static, (offset_height, offset_width, target_height, target_width))
    # Negative where the image does not fit.
    below, right = height - top - x.shape[-3], width - left - x.shape[-2]
    if min(top, left, below, right) < 0:
        raise ArgumentError(
            f"The image, of height {x.shape[-3]} and width {x.shape[-2]}, must fit into {height} x "
            f"{width} at {top}, {left}."
        )
    around = [(0, 0)] * (len(x.shape) - 3) + [(top, below), (left, right), (0, 0)]
    return dispatch.give_exact(xp, xp.pad(x, around))


def resize_with_crop_or_pad(image: Tensor, target_height: SizeLike, target_width: SizeLike) -> Tensor:
    """Cuts the middle out, or adds zeros around, to reach a size. Source: tf.image.resize_with_crop_or_pad."""
    _, x = check_image(image)
    height, width = dispatch.to_static(target_height), dispatch.to_static(target_width)
    cut_h, cut_w = min(height, x.shape[-3]), min(width, x.shape[-2])
    # Odd remainders go to the bottom and the right, as in TensorFlow.
    cropped = crop_to_bounding_box(image, (x.shape[-3] - cut_h) // 2, (x.shape[-2] - cut_w) // 2, cut_h, cut_w)
    return pad_to_bounding_box(cropped, (height - cut_h) // 2, (width - cut_w) // 2, height, width)


def resize_with_pad(
    image: Tensor, target_height: SizeLike, target_width: SizeLike, method: Any = "bilinear", antialias: bool = False
) -> Tensor:
    """Resizes to fit into a size, with the same proportions, and adds zeros.

    Source: tf.image.resize_with_pad.
    """
    resize: Any = find_in_data("resize")
    _, x = check_image(image)
    height, width = dispatch.to_static(target_height), dispatch.to_static(target_width)
    # The larger ratio decides, so that the whole image fits.
    ratio = max(x.shape[-2] / width, x.shape[-3] / height)
    size = int(x.shape[-3] / ratio), int(x.shape[-2] / ratio)
    resized = resize(image, size, method=method, antialias=antialias)
    return pad_to_bounding_box(resized, (height - size[0]) // 2, (width - size[1]) // 2, height, width)


def central_crop(image: Tensor, central_fraction: float) -> Tensor:
    """Cuts the middle out, so much of the height and the width. Source: tf.image.central_crop."""
    if not 0 < central_fraction <= 1:
        raise ArgumentError(f"central_fraction must be greater than 0 and at most 1. Received: {central_fraction}.")
    _, x = check_image(image)
    # TensorFlow truncates the offset, and the size follows from it: both edges lose as much.
    top, left = (int((s - s * central_fraction) / 2) for s in (x.shape[-3], x.shape[-2]))
    return crop_to_bounding_box(image, top, left, x.shape[-3] - 2 * top, x.shape[-2] - 2 * left)


def _crop_at_random(value: Tensor, size: ShapeLike, draw: Any) -> Any:
    xp, x = dispatch.pick(value)
    # -1 takes all of a dimension.
    sizes = tuple(x.shape[i] if s == -1 else s for i, s in enumerate(dispatch.to_static(size)))
    margins = [total - s for total, s in zip(x.shape, sizes, strict=True)]
    if min(margins) < 0:
        raise ArgumentError(f"The crop must be no larger than the image, {tuple(x.shape)}. Received: {sizes}.")
    starts = [draw(i, r + 1) for i, r in enumerate(margins)]
    # Starts that JAX draws are tracers in compiled code, which only dynamic_slice takes.
    if xp is dispatch.HOST and dispatch.library_of(*starts) is dispatch.HOST:
        at = [int(s) for s in starts]
        return dispatch.give_exact(xp, x[tuple(slice(a, a + s) for a, s in zip(at, sizes, strict=True))])
    return jax.lax.dynamic_slice(x, [dispatch.to_array(dispatch.DEVICE, s) for s in starts], sizes)


def random_crop(value: Tensor, size: ShapeLike, seed: Seed = None, name: str | None = None) -> Tensor:
    """Cuts a block of `size` (-1: all) out, anywhere. Source: tf.image.random_crop."""
    return _crop_at_random(value, size, lambda i, n: uniform((), 0, n, np.int32, seed))


def stateless_random_crop(value: Tensor, size: ShapeLike, seed: Seed, name: str | None = None) -> Tensor:
    """Cuts a block of `size` out, by a seed of two integers. Source: tf.image.stateless_random_crop."""
    # A seed for each dimension: with one, all offsets would be the same fraction.
    xp, words = dispatch.pick(seed)
    return _crop_at_random(
        value, size, lambda i, n: stateless_uniform((), dispatch.give(xp, words + i), 0, n, np.int32)
    )


def image_gradients(image: Tensor) -> tuple[Tensor, Tensor]:
    """Returns differences to the next pixel below, and to the right. Source: tf.image.image_gradients."""
    xp, x = check_image(image)
    # The last row has no pixel below: 0, as in TensorFlow.
    down = xp.pad(x[:, 1:] - x[:, :-1], [(0, 0), (0, 1), (0, 0), (0, 0)])
    right = xp.pad(x[:, :, 1:] - x[:, :, :-1], [(0, 0), (0, 0), (0, 1), (0, 0)])
    return dispatch.give(xp, down), dispatch.give(xp, right)


def total_variation(images: Tensor, name: str | None = None) -> Tensor:
    """Adds the absolute differences of neighbouring pixels up, for each image. Source: tf.image.total_variation."""
    xp, x = check_image(images)
    down = xp.sum(xp.abs(x[..., 1:, :, :] - x[..., :-1, :, :]), axis=(-3, -2, -1))
    right = xp.sum(xp.abs(x[..., 1:, :] - x[..., :-1, :]), axis=(-3, -2, -1))
    return dispatch.give(xp, down + right)


named.record_names(globals())
