"""PNG, GIF and BMP, through Pillow.

Source: tf.io.decode_png, tf.io.decode_gif, tf.io.decode_bmp.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lockstep.data._image.contents import broken
from lockstep.errors import LockstepError, UnsupportedError

# Where the header of a PNG file, its first chunk, says so.
_BIT_DEPTH, _COLOUR_TYPE = 24, 25
_Array = np.ndarray[Any, np.dtype[Any]]


def decode_png(contents: bytes, channels: int, dtype: np.dtype[Any]) -> _Array:
    """Returns the pixels of a PNG image, (height, width, channels), uint8 or uint16."""
    if b"IEND" not in contents:  # Pillow minds only pixels that are missing
        raise broken("PNG", contents, "it has no end")
    with opened("PNG", contents) as image:
        if image.mode.startswith("I"):
            return with_channels(_deep_grey(image, dtype), channels)
        if dtype == np.uint16 and _bit_depth(contents) == 16:
            raise UnsupportedError(
                "PNG images of 16 bits can be read as uint16 if they are grey; this one has colours or transparency. "
                "Read it as uint8, or store it in another format."
            )
        pixels = with_channels(_png_pixels(image, contents, channels), channels)
    return pixels if dtype == np.uint8 else pixels.astype(np.uint16) * np.uint16(257)


def decode_bmp(contents: bytes, channels: int) -> _Array:
    """Returns the pixels of a BMP image, (height, width, channels), uint8."""
    with opened("BMP", contents) as image:
        if _is_bgra(contents):
            return with_channels(_bgra(contents), channels)
        return with_channels(_pixels(image), channels)


def _is_bgra(contents: bytes) -> bool:
    """Whether a BMP image has pixels of 32 bits; Pillow would leave out their alpha."""
    return int.from_bytes(contents[28:30], "little") == 32


def _bgra(contents: bytes) -> _Array:
    begin, width, height = (int.from_bytes(contents[at : at + 4], "little", signed=True) for at in (10, 18, 22))
    pixels = np.frombuffer(contents, np.uint8, abs(height) * width * 4, begin).reshape(abs(height), width, 4)
    return np.ascontiguousarray(pixels[:: -1 if height > 0 else 1, :, [2, 1, 0, 3]])


def decode_gif(contents: bytes, frames: int | None = None) -> _Array:
    """Returns the first frames of a GIF (`None`: all), (frames, height, width, 3), uint8.

    Where a frame is transparent the one before it shows, and before the first one black, as in TensorFlow.
    """
    with opened("GIF", contents) as image:
        number = image.n_frames if frames is None else min(frames, image.n_frames)
        shown = np.zeros((number, image.height, image.width, 3), np.uint8)
        for index in range(number):
            image.seek(index)
            pixels = np.array(image.convert("RGBA"))
            shown[index] = np.where(pixels[..., 3:], pixels[..., :3], shown[max(index - 1, 0)])
        return shown


def encode_png(image: _Array, compression: int) -> bytes:
    """Returns an image, (height, width, 1 to 4) of uint8 or (height, width, 1) of uint16, as PNG."""
    modes = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
    mode = "I;16" if image.dtype == np.uint16 else modes[image.shape[-1]]
    height, width = image.shape[:2]
    target = io.BytesIO()
    level = {} if compression < 0 else {"compress_level": compression}
    pillow = importlib.import_module("PIL.Image")
    pixels = image.astype(image.dtype.newbyteorder("<"))
    pillow.frombytes(mode, (width, height), pixels.tobytes()).save(target, "PNG", **level)
    return target.getvalue()


def with_channels(pixels: _Array, channels: int) -> _Array:
    """Returns pixels (grey, or red, green, blue; maybe alpha) with another number of channels; 0: as they are."""
    had = pixels.shape[-1]
    if channels in (0, had):
        return pixels
    colours = pixels[..., : 1 if had < 3 else 3]
    if channels < 3 and had > 2:
        colours = _brightness(colours)
    if channels > 2 and had < 3:
        colours = np.repeat(colours, 3, axis=-1)
    if channels % 2:
        return np.ascontiguousarray(colours)
    opaque = np.full_like(pixels[..., :1], np.iinfo(pixels.dtype).max)
    return np.concatenate([colours, pixels[..., -1:] if had % 2 == 0 else opaque], axis=-1)


@contextmanager
def opened(name: str, contents: bytes) -> Generator[Any]:
    """Opens an image; whatever goes wrong with it inside becomes an `InputError`."""
    pillow = importlib.import_module("PIL.Image")
    try:
        with pillow.open(io.BytesIO(contents), formats=[name]) as image:
            yield image
    except LockstepError:
        raise
    except Exception as error:  # Pillow raises many kinds for broken data: OSError, SyntaxError, ValueError, EOFError
        raise broken(name, contents, error) from error


def _png_pixels(image: Any, contents: bytes, channels: int) -> _Array:
    """Returns the channels that the file has; with alpha if that is asked for and one colour stands for transparent."""
    if channels == 4 and "transparency" in image.info:
        return np.array(image.convert("RGBA"))
    pixels = _pixels(image)
    grey_and_alpha = contents[_COLOUR_TYPE] == 4
    return pixels[..., [0, -1]] if grey_and_alpha else pixels


def _pixels(image: Any) -> _Array:
    pixels = np.array(image.convert(_mode(image)))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _mode(image: Any) -> str:
    """Returns the mode whose channels are those of the image."""
    clear = "transparency" in image.info
    if image.mode == "P":
        return "RGBA" if clear else "RGB"
    return image.mode if image.mode in ("L", "LA", "RGB", "RGBA") else "L" if image.mode == "1" else "RGB"


def _deep_grey(image: Any, dtype: np.dtype[Any]) -> _Array:
    pixels = np.array(image).astype(np.uint16)[..., None]
    return pixels if dtype == np.uint16 else (pixels >> 8).astype(np.uint8)


def _brightness(colours: _Array) -> _Array:
    weights = np.array([9798, 19235, 3735], np.uint32)  # libpng's, of 1 << 15
    return (colours.astype(np.uint32) @ weights >> 15).astype(colours.dtype)[..., None]


def _bit_depth(contents: bytes) -> int:
    return contents[_BIT_DEPTH]
