"""Encoding images: pixels to `bytes`.

Source: tf.io.encode_jpeg, tf.io.encode_png.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._image.formats import simplejpeg
from lockstep.errors import ArgumentError

_Array = np.ndarray[Any, np.dtype[Any]]
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of grey, grey and alpha, colours, colours and alpha


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
    grey, subsampling = pixels.shape[-1] == 1, "420" if chroma_downsampling else "444"
    return simplejpeg().encode_jpeg(
        np.ascontiguousarray(pixels), int(quality), "GRAY" if grey else "RGB", "Gray" if grey else subsampling
    )


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
    height, width, channels = pixels.shape
    size = pixels.dtype.itemsize
    header = struct.pack(">IIBBBBB", width, height, size * 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    data = zlib.compress(_filter_rows(rows, channels * size).tobytes(), int(compression))
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _check_pixels(image: ArrayLike, channels: tuple[int, ...], dtypes: tuple[Any, ...]) -> _Array:
    pixels = np.asarray(image)
    if pixels.ndim != 3 or 0 in pixels.shape or pixels.shape[-1] not in channels or pixels.dtype not in dtypes:
        names = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise ArgumentError(
            f"an image is {names} (height, width, channels) with channels in {channels}; received {pixels.dtype} "
            f"{pixels.shape}. Scale values to 0..255 and convert them, for example with np.uint8(image)."
        )
    return pixels


def _filter_rows(rows: _Array, pixel: int) -> _Array:
    """Puts before each row how it is stored: as it is, or less the pixel to the left, or less the row above.

    The smallest sum of differences is taken, which compresses well, as the specification says.
    """
    left, above = rows.copy(), rows.copy()
    # Unsigned: differences wrap modulo 256, as the specification defines filters.
    left[:, pixel:] -= rows[:, :-pixel]
    above[1:] -= rows[:-1]
    ways = np.stack([rows, left, above])
    # The distance from 0 modulo 256.
    costs = np.minimum(ways, 0 - ways).sum(axis=-1, dtype=np.int64)
    best = costs.argmin(axis=0)
    return np.column_stack([best.astype(np.uint8), ways[best, np.arange(len(rows))]])


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
