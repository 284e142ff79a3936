"""Decoding images: `bytes` to pixels.

Source: tf.io.decode_jpeg, decode_png, decode_bmp, decode_gif, decode_image.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep._types import ArrayLike, DType
from lockstep.data._image import jpeg, opencv
from lockstep.data._image.contents import as_bytes, check_channels, check_format
from lockstep.errors import ArgumentError, InputError

_Array = np.ndarray[Any, np.dtype[Any]]
_DEPTHS = (np.dtype(np.uint8), np.dtype(np.uint16))


def decode_jpeg(
    contents: ArrayLike,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    dct_method: str = "",
) -> _Array:
    """Decodes a JPEG image (or, like TensorFlow, a PNG or a GIF of one frame).

    Args:
        contents: The encoded image.
        channels: 1 for grey, 3 for colours, 0 for what the image has.
        ratio: 1, 2, 4 or 8: how many times smaller to decode it, which takes less time.
        fancy_upscaling: Whether to interpolate the colours, which are usually stored at half the resolution.
        dct_method: "INTEGER_FAST" (as "") or "INTEGER_ACCURATE".

    Returns:
        uint8 (height, width, channels); TensorFlow's pixels.

    Raises:
        InputError: If it is no such image, or one that is damaged or incomplete.
        ArgumentError: If an argument is wrong.

    Source: tf.io.decode_jpeg, without try_recover_truncated and acceptable_fraction.
    """
    contents = as_bytes(contents)
    check_channels(channels, (0, 1, 3, 4))
    if check_format(contents, ("JPEG", "PNG", "GIF")) == "JPEG":
        check_channels(channels, (0, 1, 3))
        return jpeg.decode(contents, channels, ratio, fancy_upscaling, dct_method)
    # libjpeg decodes smaller by leaving out frequencies; other formats have none.
    if ratio != 1:
        raise ArgumentError(f"only JPEG images can be decoded smaller; received ratio={ratio} and another format.")
    return _other(contents, channels, np.dtype(np.uint8))


def decode_png(contents: ArrayLike, channels: int = 0, dtype: DType = np.uint8) -> _Array:
    """Decodes a PNG image (or, like TensorFlow, a JPEG or a GIF of one frame).

    Args:
        contents: The encoded image.
        channels: 1 for grey, 3 for colours, 4 for colours and alpha, 0 for what the image has (2: grey and alpha).
        dtype: uint8 or uint16.

    Returns:
        uint8 or uint16 (height, width, channels).

    Raises:
        InputError: If it is no such image, or one that is damaged or incomplete.
        ArgumentError: If an argument is wrong.

    Source: tf.io.decode_png.
    """
    contents = as_bytes(contents)
    check_channels(channels, (0, 1, 3, 4))
    depth = np.dtype(dtype)
    if depth not in _DEPTHS:
        raise ArgumentError(f"dtype is uint8 or uint16; received {dtype!r}.")
    check_format(contents, ("PNG", "JPEG", "GIF"))
    return _other(contents, channels, depth)


def decode_bmp(contents: ArrayLike, channels: int = 0) -> _Array:
    """Decodes a BMP image to uint8 (height, width, channels); channels: 0 (as in the image), 1, 3 or 4.

    Raises:
        InputError: If it is no such image, or one that is damaged or incomplete.

    Source: tf.io.decode_bmp.
    """
    contents = as_bytes(contents)
    check_channels(channels, (0, 1, 3, 4))
    check_format(contents, ("BMP",))
    return opencv.decode_bmp(contents, channels)


def decode_gif(contents: ArrayLike) -> _Array:
    """Decodes a GIF image to uint8 (frames, height, width, 3), each frame as it is shown.

    Raises:
        InputError: If it is no such image, or one that is damaged or incomplete.

    Source: tf.io.decode_gif.
    """
    contents = as_bytes(contents)
    check_format(contents, ("GIF",))
    return opencv.decode_gif(contents)


def decode_image(
    contents: ArrayLike, channels: int = 0, dtype: DType = np.uint8, expand_animations: bool = True
) -> _Array:
    """Decodes a JPEG, PNG, GIF or BMP image.

    Args:
        contents: The encoded image.
        channels: 1 for grey, 3 for colours, 4 for colours and alpha (PNG, BMP), 0 for what the image has.
        dtype: uint8, uint16 or a floating-point type; the latter has the range 0 to 1.
        expand_animations: Whether a GIF gives (frames, height, width, 3); else its first frame is taken.

    Returns:
        (height, width, channels), or (frames, height, width, 3) for a GIF.

    Raises:
        InputError: If it is no such image, or one that is damaged or incomplete.
        ArgumentError: If an argument is wrong.

    Source: tf.io.decode_image.
    """
    contents = as_bytes(contents)
    check_channels(channels, (0, 1, 3, 4))
    wanted = np.dtype(dtype)
    if wanted not in _DEPTHS and wanted.kind != "f":
        raise ArgumentError(f"dtype is uint8, uint16 or a floating-point type; received {dtype!r}.")
    kind = check_format(contents, ("JPEG", "PNG", "GIF", "BMP"))
    if kind == "PNG":
        # A float takes the 16 bits that a PNG may have, as TensorFlow's decode_image does.
        depth = np.dtype(np.uint8 if wanted == np.uint8 else np.uint16)
        return _as_type(opencv.decode_png(contents, channels, depth), wanted)
    return _as_type(_pixels(contents, kind, channels, expand_animations), wanted)


def _pixels(contents: bytes, kind: str, channels: int, expand_animations: bool) -> _Array:
    if kind == "GIF":
        if channels not in (0, 3):
            raise ArgumentError(f"a GIF image has 3 channels; received channels={channels}.")
        frames = opencv.decode_gif(contents, None if expand_animations else 1)
        return frames if expand_animations else frames[0]
    if kind == "BMP":
        return opencv.decode_bmp(contents, channels)
    check_channels(channels, (0, 1, 3))
    return jpeg.decode(contents, channels, 1, True, "")


def _other(contents: bytes, channels: int, dtype: np.dtype[Any]) -> _Array:
    """Decodes any format that the functions for JPEG and PNG share."""
    kind = check_format(contents, ("JPEG", "PNG", "GIF"))
    if kind == "PNG":
        return opencv.decode_png(contents, channels, dtype)
    if kind == "JPEG":
        check_channels(channels, (0, 1, 3))
        return _as_type(jpeg.decode(contents, channels, 1, True, ""), dtype)
    # Two tell whether it is animated; decoding all may take gigabytes.
    frames = opencv.decode_gif(contents, 2)
    if len(frames) > 1:
        raise InputError("the image is an animated GIF. Use decode_gif, or decode_image(expand_animations=False).")
    return _as_type(opencv.with_channels(frames[0], channels), dtype)


def _as_type(pixels: _Array, dtype: np.dtype[Any]) -> _Array:
    """Scales the range of pixels to that of a type."""
    if pixels.dtype == dtype:
        return pixels
    if dtype.kind == "f":
        # TensorFlow multiplies by the reciprocal in float32: a division would round other pixels otherwise.
        return (pixels.astype(np.float32) * np.float32(1 / np.iinfo(pixels.dtype).max)).astype(dtype)
    return pixels.astype(np.uint16) << 8  # so TensorFlow scales what has 8 bits; within PNG it repeats them
