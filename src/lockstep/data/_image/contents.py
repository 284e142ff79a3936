"""The bytes of an encoded image, and which format they are in."""

from __future__ import annotations

import numpy as np

from lockstep._types import ArrayLike
from lockstep.errors import ArgumentError, InputError

_BEGINNINGS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF8": "GIF", b"BM": "BMP"}


def as_bytes(contents: ArrayLike) -> bytes:
    """Returns encoded bytes; text arrays of shape () hold them too.

    Raises:
        ArgumentError: If they are none.
    """
    # An element of text may come as an array of shape ().
    if isinstance(contents, np.ndarray) and contents.ndim == 0:
        contents = contents.item()
    if isinstance(contents, (bytes, bytearray, memoryview)):
        return contents if isinstance(contents, bytes) else bytes(contents)
    raise ArgumentError(
        f"contents are the bytes of one encoded image, not {type(contents).__name__}. Images are decoded one by one, "
        f"on the host: call this in a map before batch, and give it a file's content, not its name."
    )


def format_of(contents: bytes) -> str | None:
    """Returns "JPEG", "PNG", "GIF" or "BMP", or `None` for anything else."""
    # By content, not by name: TensorFlow's functions get bytes, too.
    return next((name for beginning, name in _BEGINNINGS.items() if contents.startswith(beginning)), None)


def check_format(contents: bytes, allowed: tuple[str, ...]) -> str:
    """Returns the format of an image.

    Raises:
        InputError: If it is none of those allowed.
    """
    name = format_of(contents)
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
