"""Encoding images: pixels to `bytes`.

Source: tf.io.encode_jpeg, tf.io.encode_png.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._image import jpeg, png
from lockstep.errors import ArgumentError

_Array = np.ndarray[Any, np.dtype[Any]]


def encode_jpeg(image: ArrayLike, quality: int = 95, chroma_downsampling: bool = True) -> bytes:
    """Encodes an image as JPEG.

    Args:
        image: uint8 (height, width, 1 or 3).
        quality: 1 (smallest) to 100 (best).
        chroma_downsampling: Whether to store the colours at half the resolution.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.io.encode_jpeg.
    """
    if not 1 <= quality <= 100:
        raise ArgumentError(f"quality is 1 to 100; received {quality!r}.")
    pixels = _check_pixels(image, (1, 3), (np.uint8,))
    return jpeg.encode(pixels, int(quality), "420" if chroma_downsampling else "444")


def encode_png(image: ArrayLike, compression: int = -1) -> bytes:
    """Encodes an image as PNG.

    Args:
        image: uint8 or uint16 (height, width, 1 to 4): grey or colours, the even numbers with alpha.
        compression: 0 (none) to 9 (smallest); -1 is zlib's default, 6.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.io.encode_png.
    """
    if not -1 <= compression <= 9:
        raise ArgumentError(f"compression is -1 to 9; received {compression!r}.")
    pixels = _check_pixels(image, (1, 2, 3, 4), (np.uint8, np.uint16))
    return png.encode(pixels, int(compression))


def _check_pixels(image: ArrayLike, channels: tuple[int, ...], dtypes: tuple[Any, ...]) -> _Array:
    pixels = np.asarray(image)
    if pixels.ndim != 3 or 0 in pixels.shape or pixels.shape[-1] not in channels or pixels.dtype not in dtypes:
        names = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise ArgumentError(
            f"an image is {names} (height, width, channels) with channels in {channels}; received {pixels.dtype} "
            f"{pixels.shape}. Scale values to 0..255 and convert them, for example with np.uint8(image)."
        )
    return pixels
