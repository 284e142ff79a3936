"""Sizes of PNG, GIF and BMP images, by their headers.

Source: www.w3.org/TR/png; www.w3.org/Graphics/GIF/spec-gif89a.txt; BITMAPINFOHEADER and BITMAPCOREHEADER of Windows.
"""

from __future__ import annotations

import struct

from lockstep import _decoded_size
from lockstep.data._image.contents import broken_image

# Of a PNG file, its width, height and bits per sample; of a BMP file, where its second header says how long it is.
_PNG, _BMP_HEADER = 16, 14
_GIF_HEADER = 13
_EXTENSION, _IMAGE = 0x21, 0x2C


def check(name: str, contents: bytes, frames: int | None = None) -> None:
    """Checks that the pixels of an image fit into the limit, as OpenCV returns them: with up to four channels.

    Args:
        name: "PNG", "GIF" or "BMP".
        contents: The image.
        frames: Of a GIF, how many frames are decoded at most; `None`: all.

    Raises:
        InputError: If they do not, or the header is cut off.
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


_SIZES = {"PNG": _png, "GIF": _gif, "BMP": _bmp}
