"""Decoding of JPEG, PNG, GIF and BMP images.

Source: tf.io.decode_jpeg, decode_png, decode_bmp, decode_gif, decode_image; tensorflow/core/lib/jpeg/jpeg_mem.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep import _decoded_size
from lockstep._types import ArrayLike, DType
from lockstep.data._image.formats import (
    as_bytes,
    broken_image,
    check_channels,
    check_decoded_size,
    check_format,
    jpeg_header,
    opencv,
    simplejpeg,
)
from lockstep.errors import ArgumentError, InputError, UnsupportedError

_Array = np.ndarray[Any, np.dtype[Any]]
_DEPTHS = (np.dtype(np.uint8), np.dtype(np.uint16))
_START_OF_SCAN, _END = b"\xff\xda", b"\xff\xd9"
# Where the header of a PNG file, its first chunk, says so; and what its colour types are.
_BIT_DEPTH, _COLOUR_TYPE = 24, 25
_GREY, _COLOURS, _GREY_AND_ALPHA = 0, 2, 4
# How many colours a JPEG image has whose colours are cyan, magenta, yellow and black.
_INKS = 4
_EIGHT_BITS = np.dtype(np.uint8)


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
        return _decode_jpeg(contents, channels, ratio, fancy_upscaling, dct_method)
    # libjpeg decodes smaller by leaving out frequencies; other formats have none.
    if ratio != 1:
        raise ArgumentError(f"only JPEG images can be decoded smaller; received ratio={ratio} and another format.")
    return _decode_shared(contents, channels, np.dtype(np.uint8))


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
    return _decode_shared(contents, channels, depth)


def decode_bmp(contents: ArrayLike, channels: int = 0) -> _Array:
    """Decodes a BMP image to uint8 (height, width, channels); channels: 0 (as in the image), 1, 3 or 4.

    Raises:
        InputError: If it is no such image, or one that is damaged or incomplete.

    Source: tf.io.decode_bmp.
    """
    contents = as_bytes(contents)
    check_channels(channels, (0, 1, 3, 4))
    check_format(contents, ("BMP",))
    return _decode_bmp(contents, channels)


def decode_gif(contents: ArrayLike) -> _Array:
    """Decodes a GIF image to uint8 (frames, height, width, 3), each frame as it is shown.

    Raises:
        InputError: If it is no such image, or one that is damaged or incomplete.

    Source: tf.io.decode_gif.
    """
    contents = as_bytes(contents)
    check_format(contents, ("GIF",))
    return _decode_gif(contents)


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
        return _as_type(_decode_png(contents, channels, depth), wanted)
    if kind == "GIF":
        if channels not in (0, 3):
            raise ArgumentError(f"a GIF image has 3 channels; received channels={channels}.")
        frames = _decode_gif(contents, None if expand_animations else 1)
        pixels = frames if expand_animations else frames[0]
    elif kind == "BMP":
        pixels = _decode_bmp(contents, channels)
    else:
        check_channels(channels, (0, 1, 3))
        pixels = _decode_jpeg(contents, channels)
    return _as_type(pixels, wanted)


def _decode_shared(contents: bytes, channels: int, dtype: np.dtype[Any]) -> _Array:
    """Decodes any format that the functions for JPEG and PNG share."""
    kind = check_format(contents, ("JPEG", "PNG", "GIF"))
    if kind == "PNG":
        return _decode_png(contents, channels, dtype)
    if kind == "JPEG":
        check_channels(channels, (0, 1, 3))
        return _as_type(_decode_jpeg(contents, channels), dtype)
    # Two tell whether it is animated; decoding all may take gigabytes.
    frames = _decode_gif(contents, 2)
    if len(frames) > 1:
        raise InputError("the image is an animated GIF. Use decode_gif, or decode_image(expand_animations=False).")
    return _as_type(_with_channels(frames[0], channels), dtype)


def _as_type(pixels: _Array, dtype: np.dtype[Any]) -> _Array:
    """Scales the range of pixels to that of a type."""
    if pixels.dtype == dtype:
        return pixels
    if dtype.kind == "f":
        # TensorFlow multiplies by the reciprocal in float32: a division would round other pixels otherwise.
        return (pixels.astype(np.float32) * np.float32(1 / np.iinfo(pixels.dtype).max)).astype(dtype)
    return pixels.astype(np.uint16) << 8  # so TensorFlow scales what has 8 bits; within PNG it repeats them


def _decode_jpeg(
    contents: bytes, channels: int, ratio: int = 1, fancy_upscaling: bool = True, dct_method: str = ""
) -> _Array:
    """Returns the pixels of a JPEG image; see `decode_jpeg`."""
    if ratio not in (1, 2, 4, 8):
        raise ArgumentError(f"ratio is 1, 2, 4 or 8; received {ratio!r}.")
    if dct_method not in ("", "INTEGER_FAST", "INTEGER_ACCURATE"):
        raise ArgumentError(f'dct_method is "", "INTEGER_FAST" or "INTEGER_ACCURATE"; received {dct_method!r}.')
    library = simplejpeg()
    height, width, stored = jpeg_header(contents)
    # Also of an image that is decoded smaller: one that was stored progressively is held whole meanwhile.
    _decoded_size.check(height * width * 3, f"a JPEG image whose header says {height} x {width} pixels")
    # libjpeg cannot convert CMYK to RGB: TensorFlow does it itself, and so does this module.
    grey, inks = channels == 1 or (channels == 0 and stored == 1), stored == _INKS
    colours = "CMYK" if inks else "GRAY" if grey else "RGB"
    options: dict[str, Any] = {
        "min_height": -(-height // ratio),
        "min_width": -(-width // ratio),
        "fastdct": dct_method != "INTEGER_ACCURATE",
        "fastupsample": not fancy_upscaling,
    }
    try:
        try:
            pixels = library.decode_jpeg(contents, colours, **options)
        except ValueError as error:
            # As TensorFlow does: oddities that leave a whole image, whose last scan is followed by the marker that ends
            # an image, are tolerated; an early end is not.
            is_whole = contents.rfind(_END) > contents.rfind(_START_OF_SCAN)
            if "Premature end of JPEG file" in str(error) or not is_whole:
                raise
            pixels = library.decode_jpeg(contents, colours, strict=False, **options)
    except (ValueError, KeyError) as error:
        raise broken_image("JPEG", contents, error) from error
    return _from_inks(pixels, contents, grey) if inks else pixels


def _from_inks(inks: _Array, contents: bytes, grey: bool) -> _Array:
    """Converts cyan, magenta, yellow and black to colours or their brightness, in TensorFlow's arithmetic."""
    values = inks.astype(np.int32)
    # Adobe's programs store the inks inverted, and say who they are.
    values = values if b"Adobe" in contents[: contents.find(_START_OF_SCAN)] else 255 - values
    colours = (values[..., :3] * values[..., 3:] // 255).astype(np.uint8)
    if not grey:
        return colours
    return np.rint(colours @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., None]


def _decode_png(contents: bytes, channels: int, dtype: np.dtype[Any]) -> _Array:
    """Returns the pixels of a PNG image, (height, width, channels), uint8 or uint16."""
    if b"IEND" not in contents:  # OpenCV minds only pixels that are missing
        raise broken_image("PNG", contents, "it has no end")
    pixels, kind = _decode_opencv("PNG", contents), contents[_COLOUR_TYPE]
    # The channels that the file has; with alpha if that is asked for and one colour stands for transparent.
    if kind == _GREY_AND_ALPHA:
        pixels = np.ascontiguousarray(pixels[..., [0, 3]])
    elif kind == _GREY and channels == 4:
        pixels = _with_transparent_grey(pixels, contents)
    elif kind == _COLOURS and channels != 4:
        pixels = pixels[..., :3]
    pixels = _with_channels(pixels, channels)
    if pixels.dtype == dtype:
        return pixels
    # 257 = 65535 / 255: white stays white, as libpng expands it.
    return (pixels >> 8).astype(dtype) if dtype == _EIGHT_BITS else pixels.astype(dtype) * dtype.type(257)


def _with_transparent_grey(pixels: _Array, contents: bytes) -> _Array:
    """Adds alpha if the file names a grey that stands for transparent, which OpenCV leaves out."""
    begin = contents.find(b"tRNS", 0, contents.find(b"IDAT"))
    if begin < 0:
        return pixels
    greys, opaque = (1 << contents[_BIT_DEPTH]) - 1, np.iinfo(pixels.dtype).max
    # The chunk holds 16 bits whatever the depth; only the lower ones count.
    transparent = int.from_bytes(contents[begin + 4 : begin + 6]) & greys
    alpha = np.where(pixels == transparent * (opaque // greys), 0, opaque).astype(pixels.dtype)
    return np.concatenate([pixels, alpha], axis=-1)


def _decode_bmp(contents: bytes, channels: int) -> _Array:
    # OpenCV drops the alpha of 32 bits if the header does not mention it, so these images are read here.
    if int.from_bytes(contents[28:30], "little") != 32:
        return _with_channels(_decode_opencv("BMP", contents), channels)
    begin, width, height = (int.from_bytes(contents[at : at + 4], "little", signed=True) for at in (10, 18, 22))
    try:
        pixels = np.frombuffer(contents, np.uint8, abs(height) * width * 4, begin).reshape(abs(height), width, 4)
    except ValueError as error:
        raise broken_image("BMP", contents, error) from error
    return _with_channels(np.ascontiguousarray(pixels[:: -1 if height > 0 else 1, :, [2, 1, 0, 3]]), channels)


def _decode_gif(contents: bytes, frames: int | None = None) -> _Array:
    """Returns the first frames of a GIF (`None`: all), (frames, height, width, 3), uint8.

    Where a frame is transparent the one before it shows, and before the first one black, as in TensorFlow.
    """
    library = opencv()
    if not library.haveImageWriter("image.gif"):  # it asks about names, not about files; what it writes it reads, too
        raise UnsupportedError(
            f"reading GIF images needs OpenCV 4.12 or newer, built with GIF; {library.__version__} here reads none: "
            f'pip install --upgrade "lockstep[images]".'
        )
    check_decoded_size("GIF", contents, frames)
    some = {} if frames is None else {"range": (0, frames)}
    try:
        _, images = library.imdecodemulti(np.frombuffer(contents, np.uint8), library.IMREAD_UNCHANGED, **some)
    except library.error as error:
        raise broken_image("GIF", contents, error) from error
    # OpenCV returns nothing of a GIF that is cut off, instead of an error.
    if not images:
        raise broken_image("GIF", contents, "it has no frames, or no end")
    shown = np.zeros((len(images), *images[0].shape[:2], 3), np.uint8)
    for index, frame in enumerate(images):
        pixels = _channels_in_order(frame)
        before = shown[max(index - 1, 0)]
        shown[index] = np.where(pixels[..., 3:], pixels[..., :3], before) if pixels.shape[-1] == 4 else pixels
    return shown


def _with_channels(pixels: _Array, channels: int) -> _Array:
    """Returns pixels (grey, or red, green, blue; maybe alpha) with another number of channels; 0: as they are."""
    had = pixels.shape[-1]
    if channels in (0, had):
        return np.ascontiguousarray(pixels)
    colours = pixels[..., : 1 if had < 3 else 3]
    if channels < 3 and had > 2:
        weights = np.array([9797, 19234, 3737], np.uint32)  # libpng's, of 1 << 15; it rounds what has 16 bits
        half = 0 if colours.dtype == _EIGHT_BITS else 1 << 14
        brightness = (colours.astype(np.uint32) @ weights + np.uint32(half)) >> 15
        colours = brightness.astype(colours.dtype)[..., None]
    if channels > 2 and had < 3:
        colours = np.repeat(colours, 3, axis=-1)
    if channels % 2:
        return np.ascontiguousarray(colours)
    opaque = np.full_like(pixels[..., :1], np.iinfo(pixels.dtype).max)
    return np.concatenate([colours, pixels[..., -1:] if had % 2 == 0 else opaque], axis=-1)


def _decode_opencv(name: str, contents: bytes) -> _Array:
    check_decoded_size(name, contents)
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
