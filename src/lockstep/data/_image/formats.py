"""Encoded images: their formats, the sizes in their headers, and the libraries that decode them.

Source: www.w3.org/Graphics/JPEG/itu-t81.pdf, B.1; www.w3.org/TR/png; www.w3.org/Graphics/GIF/spec-gif89a.txt;
BITMAPINFOHEADER and BITMAPCOREHEADER of Windows.
"""

from __future__ import annotations

import importlib
import struct
from functools import cache
from typing import Any

import numpy as np

from lockstep import _decoded_size
from lockstep._types import ArrayLike
from lockstep.errors import ArgumentError, InputError, UnsupportedError

_BEGINNINGS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF8": "GIF", b"BM": "BMP"}
# Of a PNG file, its width, height and bits per sample; of a BMP file, where its second header says how long it is.
_PNG, _BMP_HEADER = 16, 14
_GIF_HEADER = 13
# What begins a marker of a JPEG file; those of frames, SOF0 to SOF15 without DHT, JPG and DAC; and those without a
# length: TEM, RST0 to RST7, and 0 for none.
_MARKER, _FRAMES = 0xFF, frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset((0, 1, *range(0xD0, 0xD8)))
_EXTENSION, _IMAGE = 0x21, 0x2C


def as_bytes(contents: ArrayLike) -> bytes:
    """Returns encoded bytes; text arrays of shape () hold them too."""
    # An element of text may come as an array of shape ().
    if isinstance(contents, np.ndarray) and contents.ndim == 0:
        contents = contents.item()
    if isinstance(contents, (bytes, bytearray, memoryview)):
        return contents if isinstance(contents, bytes) else bytes(contents)
    raise ArgumentError(
        f"contents are the bytes of one encoded image, not {type(contents).__name__}. Images are decoded one by one, "
        f"on the host: call this in a map before batch, and give it a file's content, not its name."
    )


def check_format(contents: bytes, allowed: tuple[str, ...]) -> str:
    """Returns the format of an image, one of those allowed."""
    # By content, not by name: TensorFlow's functions get bytes, too.
    name = next((name for beginning, name in _BEGINNINGS.items() if contents.startswith(beginning)), None)
    if name in allowed:
        return name
    begin = f"{len(contents)} bytes that begin with {contents[:8]!r}" if contents else "no bytes at all"
    received = f"the image is in the format {name}" if name else f"{begin} are no image in a known format"
    raise InputError(
        f"{' or '.join(allowed)} is expected; {received}. Use the format's own function, or check the file."
    )


def check_channels(channels: int, allowed: tuple[int, ...]) -> None:
    """Checks that the number of channels is one of `allowed`; raises `ArgumentError` otherwise."""
    if channels not in allowed:
        raise ArgumentError(f"channels is one of {allowed} (0: as in the image); received {channels!r}.")


def broken_image(name: str, contents: bytes, reason: object) -> InputError:
    """Returns the error for an image that cannot be decoded."""
    return InputError(
        f"a {name} image of {len(contents)} bytes cannot be decoded: {reason}. The file is damaged or incomplete; copy "
        f"it again, or leave it out."
    )


@cache
def opencv() -> Any:
    """Returns OpenCV, kept to one thread per call."""
    library = _import("cv2", "opencv-python-headless")
    # Images are spread over threads already. OpenCV would start as many again as there are processors, let them spin
    # between calls, and lose them in a process that forks. The setting is the process's; a number of threads that the
    # program has chosen itself, before or after, stays.
    if library.getNumThreads() == library.getNumberOfCPUs():  # what it begins with
        library.setNumThreads(0)
    return library


@cache
def simplejpeg() -> Any:
    """Returns simplejpeg."""
    return _import("simplejpeg", "simplejpeg")


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f'images need the package {package}, which cannot be imported ({error}): pip install "lockstep[images]".'
        ) from error


def check_decoded_size(name: str, contents: bytes, frames: int | None = None) -> None:
    """Checks that the pixels of an image fit into the limit, as OpenCV returns them: with up to four channels.

    Of a GIF, up to `frames` frames count; `None`: all.
    """
    try:
        height, width, pixel, count = _SIZES[name](contents)
    except (struct.error, IndexError) as error:
        raise broken_image(name, contents, "its header is cut off") from error
    count = count if frames is None else min(count, frames)
    several = f" in {count} frames" if count > 1 else ""
    what = f"a {name} image whose header says {height} x {width} pixels{several}"
    _decoded_size.check(height * width * pixel * count, what)


def _png(contents: bytes) -> tuple[int, int, int, int]:
    width, height, depth = struct.unpack_from(">IIB", contents, _PNG)
    # Four channels of two bytes or one.
    return height, width, 8 if depth == 16 else 4, 1


def _bmp(contents: bytes) -> tuple[int, int, int, int]:
    (header,) = struct.unpack_from("<I", contents, _BMP_HEADER)
    # The oldest of headers, of 12 bytes, has numbers of 16 bits.
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", contents, _BMP_HEADER + 4)
    return abs(height), abs(width), 4, 1


def _gif(contents: bytes) -> tuple[int, int, int, int]:
    width, height, flags = struct.unpack_from("<HHB", contents, 6)
    return height, width, 4, max(1, _frames_of(contents, _GIF_HEADER + _colours(flags)))


def _colours(flags: int) -> int:
    """Returns how many bytes a table of colours has."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _frames_of(contents: bytes, at: int) -> int:
    """Returns the number of frames in a GIF, whole or cut off."""
    frames = 0
    while at < len(contents):
        kind = contents[at]
        # Blocks are walked, not decoded: a few bytes each, however large the frame is.
        if kind == _IMAGE and at + 10 < len(contents):
            frames += 1
            at += 11 + _colours(contents[at + 9])
        elif kind == _EXTENSION:
            at += 2
        else:
            break
        while at < len(contents) and contents[at]:  # Blocks of data, each with its length; one of none ends them.
            at += contents[at] + 1
        at += 1
    return frames


def jpeg_header(contents: bytes) -> tuple[int, int, int]:
    """Returns the height, the width and the number of colours of a JPEG image.

    Python finds them sooner than simplejpeg, 0.5 us beside 1.2, and leaves Python's lock to no other thread meanwhile.

    Raises:
        InputError: If there is no header.
    """
    at = 2
    try:
        while True:
            # As libjpeg looks for a marker: after any bytes, and one or more of 255; 0 says that it is none.
            if contents[at] != _MARKER:
                at = contents.index(_MARKER, at)
            while (marker := contents[at]) == _MARKER:
                at += 1
            if marker in _FRAMES:
                return struct.unpack_from(">HHB", contents, at + 4)
            # A segment: the length follows, of which it is a part.
            at += 1 if marker in _ALONE else 1 + int.from_bytes(contents[at + 1 : at + 3])
    except (struct.error, IndexError, ValueError) as error:
        raise broken_image("JPEG", contents, "it has no header, or one that is cut off") from error


_SIZES = {"PNG": _png, "GIF": _gif, "BMP": _bmp}
