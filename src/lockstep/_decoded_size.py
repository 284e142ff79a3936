"""Bounds how much memory encoded data may take, by what its header says, before that memory is taken.

Few bytes can stand for many: a JPEG image of 691 bytes for 2.8 GB of pixels, a TensorProto of 18 bytes for any number
of zeros. What lies uncompressed in a file needs no bound: it is no larger than the file.
"""

from __future__ import annotations

import os
import zlib

from lockstep.errors import ArgumentError, InputError

VARIABLE = "LOCKSTEP_MAX_DECODED_BYTES"
# An image of 18,900 x 18,900 pixels of three colours; larger ones are rarer than files that were made to do harm.
_DEFAULT = 1 << 30
# zlib's numbers of the formats of RFC 1952 and RFC 1950.
WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}


def limit() -> int:
    """Returns how many bytes one image, record or tensor may take once decoded: `LOCKSTEP_MAX_DECODED_BYTES`, or 1 GiB.

    Raises:
        ArgumentError: If the variable is no positive whole number.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return _DEFAULT
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentError(
            f"{VARIABLE} must be a positive number of bytes. Received: {text!r}. Example: {VARIABLE}={4 << 30}"
        )
    return int(text)


def check(size: int, what: str) -> None:
    """Raises `InputError` if a size in bytes, that of `what` (the beginning of the message), is beyond the limit."""
    if size > limit():
        raise too_large(what, f"{size:,} bytes")


def too_large(what: str, size: str) -> InputError:
    """Returns the error about something that would take too much memory."""
    return InputError(
        f"{what}: {size} once decoded, and at most {limit():,} are taken ({VARIABLE}). Leave it out; or, if you know "
        "where it comes from, raise the limit."
    )


def inflate(content: bytes, window_bits: int, what: str) -> bytes:
    """Returns what zlib has compressed, in one part or several after each other.

    Raises:
        InputError: If it is longer than the limit.
        zlib.error: If it is damaged.
        EOFError: If it ends early.
    """
    most, parts, total = limit(), list[bytes](), 0
    while content:
        part = zlib.decompressobj(window_bits)
        # One byte more than may be: so that what is too long shows.
        parts.append(part.decompress(content, most - total + 1))
        total += len(parts[-1])
        if total > most:
            raise too_large(what, f"more than {most:,} bytes")
        if not part.eof:
            raise EOFError("it ends before the compressed data does")
        # gzip pads to whole blocks of a tape.
        content = part.unused_data.lstrip(b"\0")
    return b"".join(parts)
