"""JPEG files: parts of them, their sizes, and what their compression does to images."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._forward import find_in_data
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.color import convert_image_dtype
from lockstep.compat.tensorflow._ops.images import check_image
from lockstep.compat.tensorflow._ops.random import stateless_uniform, uniform
from lockstep.compat.tensorflow._ops.strings import map_text, to_bytes
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import DTypeLike, Seed, ShapeLike, SizeLike
from lockstep.errors import ArgumentError, InputError, UnsupportedError

__all__ = ["adjust_jpeg_quality", "decode_and_crop_jpeg", "extract_jpeg_shape", "is_jpeg", "random_jpeg_quality"]
__all__ += ["stateless_random_jpeg_quality"]

_START = b"\xff\xd8\xff"
# Markers that begin a frame; those left out are tables.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def is_jpeg(contents: Tensor, name: str | None = None) -> Tensor:
    """Returns whether the contents of a file begin as a JPEG file does. Source: tf.io.is_jpeg."""
    return map_text(lambda text: text.startswith(_START), contents, np.bool_)


def extract_jpeg_shape(contents: Tensor, output_type: DTypeLike = np.int32, name: str | None = None) -> Tensor:
    """Returns height, width and channels of a JPEG file, without decoding it.

    Raises:
        InputError: If it is none, or ends before.

    Source: tf.io.extract_jpeg_shape.
    """
    data = to_bytes(contents).item()
    at = 2
    # Segments follow one another, each with its length, up to the one that describes the frame.
    while data.startswith(_START) and at + 9 < len(data):
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in _FRAMES:
            height, width = (int.from_bytes(data[at + k : at + k + 2], "big") for k in (5, 7))
            return as_host(np.array([height, width, data[at + 9]], as_dtype(output_type).dtype))
        # Bytes 0xFF may fill the space before a marker.
        at += 1 if marker == 0xFF else 2 + size
    raise InputError(f"The contents must be those of a JPEG file. Received {len(data)} bytes, beginning {data[:8]!r}.")


def decode_and_crop_jpeg(
    contents: Tensor,
    crop_window: ShapeLike,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """Decodes a JPEG file, and cuts a part out: top, left, height and width in pixels.

    Other arguments are those of `decode_jpeg`; `try_recover_truncated` and `acceptable_fraction` must be left as they
    are: a file that is not whole is an error.

    Source: tf.io.decode_and_crop_jpeg.
    """
    if try_recover_truncated or acceptable_fraction != 1:
        raise UnsupportedError(
            "A JPEG file that is not whole is an error. Leave try_recover_truncated and the like out."
        )
    decode: Any = find_in_data("decode_jpeg")
    image = decode(contents, channels, ratio, fancy_upscaling, dct_method=dct_method)
    top, left, height, width = dispatch.to_static(crop_window)
    if min(top, left) < 0 or min(height, width) < 1 or top + height > image.shape[0] or left + width > image.shape[1]:
        raise ArgumentError(
            f"The part must lie in the image, of height {image.shape[0]} and width {image.shape[1]}. Received: "
            f"{[top, left, height, width]}."
        )
    return as_host(np.asarray(image)[top : top + height, left : left + width])


def adjust_jpeg_quality(image: Tensor, jpeg_quality: SizeLike, name: str | None = None) -> Tensor:
    """Returns an image as its compression by JPEG leaves it: on the host, in `Dataset.map` for example.

    Args:
        image: `[height, width, channels]`, of uint8, or of floating-point numbers in [0, 1].
        jpeg_quality: From 0 to 100.
        name: Its name in a model_fn.

    Source: tf.image.adjust_jpeg_quality.
    """
    xp, x = check_image(image)
    if xp is not dispatch.HOST:
        raise UnsupportedError(
            "JPEG files are written on the host. Use adjust_jpeg_quality in Dataset.map, on numpy's."
        )
    encode, decode = find_in_data("encode_jpeg"), find_in_data("decode_jpeg")
    pixels = convert_image_dtype(as_host(x), np.uint8, saturate=True)
    channels = int(pixels.shape[-1])
    result = decode(encode(pixels, quality=int(dispatch.to_static(jpeg_quality))), channels)
    return convert_image_dtype(result, x.dtype, saturate=True)


def random_jpeg_quality(image: Tensor, min_jpeg_quality: int, max_jpeg_quality: int, seed: Seed = None) -> Tensor:
    """Compresses as `adjust_jpeg_quality`, with a quality from one up to but without the other.

    Source: tf.image.random_jpeg_quality.
    """
    _check_qualities(min_jpeg_quality, max_jpeg_quality)
    return adjust_jpeg_quality(image, uniform((), min_jpeg_quality, max_jpeg_quality, np.int32, seed))


def stateless_random_jpeg_quality(image: Tensor, min_jpeg_quality: int, max_jpeg_quality: int, seed: Seed) -> Tensor:
    """Compresses as `random_jpeg_quality`, by a seed of two integers.

    Source: tf.image.stateless_random_jpeg_quality.
    """
    _check_qualities(min_jpeg_quality, max_jpeg_quality)
    return adjust_jpeg_quality(image, stateless_uniform((), seed, min_jpeg_quality, max_jpeg_quality, np.int32))


def _check_qualities(low: int, high: int) -> None:
    if not 0 <= low < high <= 100:
        raise ArgumentError(f"Qualities must be from 0 to 100, the first below the second. Received: {low} and {high}.")


named.record_names(globals())
