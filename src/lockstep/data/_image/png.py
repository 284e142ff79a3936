"""Writing PNG files, which OpenCV does only for some numbers of channels.

Source: tf.io.encode_png; the specification of PNG, www.w3.org/TR/png.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of grey, grey and alpha, colours, colours and alpha
_Array = np.ndarray[Any, np.dtype[Any]]


def encode(image: _Array, compression: int) -> bytes:
    """Returns an image, (height, width, 1 to 4) of uint8 or uint16, as PNG."""
    height, width, channels = image.shape
    size = image.dtype.itemsize
    header = struct.pack(">IIBBBBB", width, height, size * 8, _COLOUR_TYPES[channels], 0, 0, 0)
    rows = np.ascontiguousarray(image, image.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    data = zlib.compress(_filter_rows(rows, channels * size).tobytes(), compression)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


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
