"""Batches of images as TensorBoard shows them."""

from __future__ import annotations

import numpy as np

# Smaller values than this are all shown as zero.
_LEAST = 1e-6


def as_bytes(images: np.ndarray) -> list[np.ndarray]:
    """Returns each image of a batch as uint8 (height, width, channels).

    Floats are scaled image by image: without negative values, so that the largest is 255; else, so that zero is 128 and
    the value farthest from zero is 1 or 255. Pixels that are not finite become bright red, or white in images of one
    channel.

    Args:
        images: (batch, height, width, 1, 3 or 4); uint8 is taken as it is.

    Source: tf.compat.v1.summary.image.
    """
    if images.dtype == np.uint8:
        return list(images)
    return [_scaled(image.astype("float32")) for image in images]


def _scaled(image: np.ndarray) -> np.ndarray:
    bad = ~np.isfinite(image).all(axis=-1)
    good = image[~bad]
    pixels = np.empty(image.shape, np.uint8)
    pixels[~bad] = _shown(good) if good.size else good
    pixels[bad] = np.array([255, 0, 0, 255][: image.shape[-1]], np.uint8)
    return pixels


def _shown(values: np.ndarray) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    if low < 0:
        farthest = max(-low, high)
        return values * np.float32(127 / farthest if farthest >= _LEAST else 0) + np.float32(128)
    return values * np.float32(255 / high if high >= _LEAST else 0)
