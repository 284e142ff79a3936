"""JPEG, through libjpeg-turbo (the package simplejpeg), which TensorFlow uses too; both give the same pixels.

Source: tf.io.decode_jpeg, tf.io.encode_jpeg; tensorflow/core/lib/jpeg/jpeg_mem.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep import _decoded_size
from lockstep.data._image.contents import broken_image
from lockstep.data._image.libraries import simplejpeg
from lockstep.errors import ArgumentError

_Array = np.ndarray[Any, np.dtype[Any]]
_START_OF_SCAN, _END = b"\xff\xda", b"\xff\xd9"


def decode(contents: bytes, channels: int, ratio: int, fancy_upscaling: bool, dct_method: str) -> _Array:
    """Returns the pixels of a JPEG image; see `decode_jpeg`."""
    if ratio not in (1, 2, 4, 8):
        raise ArgumentError(f"ratio is 1, 2, 4 or 8; received {ratio!r}.")
    if dct_method not in ("", "INTEGER_FAST", "INTEGER_ACCURATE"):
        raise ArgumentError(f'dct_method is "", "INTEGER_FAST" or "INTEGER_ACCURATE"; received {dct_method!r}.')
    height, width, stored, _ = _header(contents)
    # Also of an image that is decoded smaller: one that was stored progressively is held whole meanwhile.
    _decoded_size.check(height * width * 3, f"a JPEG image whose header says {height} x {width} pixels")
    # libjpeg cannot convert CMYK to RGB: TensorFlow does it itself, and so does this module.
    grey, inks = channels == 1 or (channels == 0 and stored == "Gray"), stored in ("CMYK", "YCCK")
    options = {
        "min_height": -(-height // ratio),
        "min_width": -(-width // ratio),
        "fastdct": dct_method != "INTEGER_ACCURATE",
        "fastupsample": not fancy_upscaling,
    }
    try:
        pixels = _decode(contents, "CMYK" if inks else "GRAY" if grey else "RGB", options)
    except (ValueError, KeyError) as error:
        raise broken_image("JPEG", contents, error) from error
    return _from_inks(pixels, contents, grey) if inks else pixels


def encode(image: _Array, quality: int, subsampling: str) -> bytes:
    """Returns an image of uint8, (height, width, 1 or 3), as JPEG."""
    grey = image.shape[-1] == 1
    return simplejpeg().encode_jpeg(
        np.ascontiguousarray(image), quality, "GRAY" if grey else "RGB", "Gray" if grey else subsampling
    )


def shape(contents: bytes) -> tuple[int, int, int]:
    """Returns (height, width, channels) without decoding the pixels."""
    height, width, colours, _ = _header(contents)
    return height, width, 1 if colours == "Gray" else 3


def _header(contents: bytes) -> tuple[int, int, str, str]:
    reader = simplejpeg().decode_jpeg_header
    try:
        return reader(contents, strict=False)
    except (ValueError, KeyError) as error:  # simplejpeg looks colours up that it does not know
        raise broken_image("JPEG", contents, error) from error


def _decode(contents: bytes, colours: str, options: dict[str, Any]) -> _Array:
    """Decodes as TensorFlow does: oddities that leave a whole image are tolerated, an early end is not."""
    decoder = simplejpeg().decode_jpeg
    try:
        return decoder(contents, colours, **options)
    except ValueError as error:
        if "Premature end of JPEG file" in str(error) or not _ends(contents):
            raise
        return decoder(contents, colours, strict=False, **options)


def _ends(contents: bytes) -> bool:
    """Returns whether the last scan is followed by the marker that ends an image."""
    return contents.rfind(_END) > contents.rfind(_START_OF_SCAN)


def _from_inks(inks: _Array, contents: bytes, grey: bool) -> _Array:
    """Returns cyan, magenta, yellow and black as red, green and blue (or their brightness), in TensorFlow's arithmetic.

    Adobe's programs store the inks inverted, and say who they are.
    """
    values = inks.astype(np.int32)
    values = values if b"Adobe" in contents[: contents.find(_START_OF_SCAN)] else 255 - values
    colours = (values[..., :3] * values[..., 3:] // 255).astype(np.uint8)
    if not grey:
        return colours
    return np.rint(colours @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., None]
