"""PNG, GIF and BMP, through OpenCV.

Source: tf.io.decode_png, tf.io.decode_gif, tf.io.decode_bmp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.data._image import sizes
from lockstep.data._image.contents import broken_image
from lockstep.data._image.libraries import opencv
from lockstep.errors import UnsupportedError

# Where the header of a PNG file, its first chunk, says so; and what its colour types are.
_BIT_DEPTH, _COLOUR_TYPE = 24, 25
_GREY, _COLOURS, _GREY_AND_ALPHA = 0, 2, 4
_EIGHT_BITS = np.dtype(np.uint8)
_Array = np.ndarray[Any, np.dtype[Any]]


def decode_png(contents: bytes, channels: int, dtype: np.dtype[Any]) -> _Array:
    """Returns the pixels of a PNG image, (height, width, channels), uint8 or uint16."""
    if b"IEND" not in contents:  # OpenCV minds only pixels that are missing
        raise broken_image("PNG", contents, "it has no end")
    pixels = with_channels(_png_pixels(contents, channels), channels)
    if pixels.dtype == dtype:
        return pixels
    # 257 = 65535 / 255: white stays white, as libpng expands it.
    return (pixels >> 8).astype(dtype) if dtype == _EIGHT_BITS else pixels.astype(dtype) * dtype.type(257)


def _png_pixels(contents: bytes, channels: int) -> _Array:
    """Returns the channels that the file has; with alpha if that is asked for and one colour stands for transparent."""
    pixels, kind = _decode("PNG", contents), contents[_COLOUR_TYPE]
    if kind == _GREY_AND_ALPHA:
        return np.ascontiguousarray(pixels[..., [0, 3]])
    if kind == _GREY and channels == 4:
        return _with_transparent_grey(pixels, contents)
    return pixels[..., :3] if kind == _COLOURS and channels != 4 else pixels


def _with_transparent_grey(pixels: _Array, contents: bytes) -> _Array:
    """Adds alpha if the file names a grey that stands for transparent, which OpenCV leaves out."""
    begin = contents.find(b"tRNS", 0, contents.find(b"IDAT"))
    if begin < 0:
        return pixels
    depth = contents[_BIT_DEPTH]
    greys, opaque = (1 << depth) - 1, np.iinfo(pixels.dtype).max
    # The chunk holds 16 bits whatever the depth; only the lower ones count.
    transparent = int.from_bytes(contents[begin + 4 : begin + 6]) & greys
    alpha = np.where(pixels == transparent * (opaque // greys), 0, opaque).astype(pixels.dtype)
    return np.concatenate([pixels, alpha], axis=-1)


def decode_bmp(contents: bytes, channels: int) -> _Array:
    """Returns the pixels of a BMP image, (height, width, channels), uint8."""
    return with_channels(_bgra(contents) if _is_bgra(contents) else _decode("BMP", contents), channels)


def _is_bgra(contents: bytes) -> bool:
    """Returns whether a BMP image has pixels of 32 bits."""
    # OpenCV drops their alpha if the header does not mention it, so these images are read here.
    return int.from_bytes(contents[28:30], "little") == 32


def _bgra(contents: bytes) -> _Array:
    begin, width, height = (int.from_bytes(contents[at : at + 4], "little", signed=True) for at in (10, 18, 22))
    try:
        pixels = np.frombuffer(contents, np.uint8, abs(height) * width * 4, begin).reshape(abs(height), width, 4)
    except ValueError as error:
        raise broken_image("BMP", contents, error) from error
    return np.ascontiguousarray(pixels[:: -1 if height > 0 else 1, :, [2, 1, 0, 3]])


def decode_gif(contents: bytes, frames: int | None = None) -> _Array:
    """Returns the first frames of a GIF (`None`: all), (frames, height, width, 3), uint8.

    Where a frame is transparent the one before it shows, and before the first one black, as in TensorFlow.
    """
    images = _frames(contents, frames)
    shown = np.zeros((len(images), *images[0].shape[:2], 3), np.uint8)
    for index, frame in enumerate(images):
        pixels = _channels_in_order(frame)
        before = shown[max(index - 1, 0)]
        shown[index] = np.where(pixels[..., 3:], pixels[..., :3], before) if pixels.shape[-1] == 4 else pixels
    return shown


def _frames(contents: bytes, frames: int | None) -> Sequence[_Array]:
    library = opencv()
    _check_reads_gif(library)
    sizes.check("GIF", contents, frames)
    encoded = np.frombuffer(contents, np.uint8)
    some = {} if frames is None else {"range": (0, frames)}
    try:
        _, images = library.imdecodemulti(encoded, library.IMREAD_UNCHANGED, **some)
    except library.error as error:
        raise broken_image("GIF", contents, error) from error
    # OpenCV returns nothing of a GIF that is cut off, instead of an error.
    if not images:
        raise broken_image("GIF", contents, "it has no frames, or no end")
    return images


def _check_reads_gif(library: Any) -> None:
    if not library.haveImageWriter("image.gif"):  # it asks about names, not about files; what it writes it reads, too
        raise UnsupportedError(
            f"reading GIF images needs OpenCV 4.12 or newer, built with GIF; {library.__version__} here reads none: "
            f'pip install --upgrade "lockstep[images]".'
        )


def with_channels(pixels: _Array, channels: int) -> _Array:
    """Returns pixels (grey, or red, green, blue; maybe alpha) with another number of channels; 0: as they are."""
    had = pixels.shape[-1]
    if channels in (0, had):
        return np.ascontiguousarray(pixels)
    colours = pixels[..., : 1 if had < 3 else 3]
    if channels < 3 and had > 2:
        colours = _brightness(colours)
    if channels > 2 and had < 3:
        colours = np.repeat(colours, 3, axis=-1)
    if channels % 2:
        return np.ascontiguousarray(colours)
    opaque = np.full_like(pixels[..., :1], np.iinfo(pixels.dtype).max)
    return np.concatenate([colours, pixels[..., -1:] if had % 2 == 0 else opaque], axis=-1)


def _brightness(colours: _Array) -> _Array:
    weights = np.array([9797, 19234, 3737], np.uint32)  # libpng's, of 1 << 15; it rounds what has 16 bits
    half = 0 if colours.dtype == _EIGHT_BITS else 1 << 14
    return ((colours.astype(np.uint32) @ weights + np.uint32(half)) >> 15).astype(colours.dtype)[..., None]


def _decode(name: str, contents: bytes) -> _Array:
    sizes.check(name, contents)
    library = opencv()
    try:
        pixels = library.imdecode(np.frombuffer(contents, np.uint8), library.IMREAD_UNCHANGED)
    except library.error as error:  # sizes beyond all bounds
        raise broken_image(name, contents, error) from error
    if pixels is None:
        raise broken_image(name, contents, "its data end early or contradict themselves")
    return _channels_in_order(pixels)


def _channels_in_order(pixels: _Array) -> _Array:
    """Returns (height, width, channels), red first; OpenCV has blue first, and no axis for one channel."""
    library = opencv()
    if pixels.ndim == 2:
        return pixels[..., None]
    return library.cvtColor(pixels, library.COLOR_BGR2RGB if pixels.shape[-1] == 3 else library.COLOR_BGRA2RGBA)
