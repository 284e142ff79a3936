"""Pieces of partitioned variables: their places, and the keys that tables have them under.

Source: tensorflow/core/util/saved_tensor_slice_util.cc (EncodeTensorNameSlice);
tensorflow/core/lib/strings/ordered_code.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Along a dimension, the first index and how many; -1 for all of it.
Extent = tuple[int, int]
_WHOLE = -1


def extents_of(piece: Any) -> list[Extent]:
    """Returns the place of a piece, given its message."""
    return [(extent.start, extent.length if extent.HasField("length") else _WHOLE) for extent in piece.extent]


def indices(extents: Sequence[Extent], shape: Sequence[int]) -> tuple[slice, ...]:
    """Returns where in a variable a piece lies.

    Raises:
        ValueError: If it lies beyond the variable.
    """
    if len(extents) != len(shape):
        raise ValueError(f"a piece has {len(extents)} dimensions, and the variable {len(shape)}")
    places: list[slice] = []
    for (start, length), size in zip(extents, shape, strict=True):
        end = size if length == _WHOLE else start + length
        if not 0 <= start <= end <= size:
            raise ValueError(f"a piece from {start} to {end} lies beyond the {size} of the variable")
        places.append(slice(start, end))
    return tuple(places)


def key_of(name: bytes, extents: Sequence[Extent]) -> bytes:
    """Returns the key of a piece: a zero, the variable's name, and its place, in an encoding that sorts."""
    parts = [_to_unsigned(0), _text(name), _to_unsigned(len(extents))]
    for start, length in extents:
        parts += [_to_signed(start), _to_signed(length)]
    return b"".join(parts)


def _to_unsigned(value: int) -> bytes:
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _text(value: bytes) -> bytes:
    # Escaped, so that the end, which sorts before all else, is told from a zero in the text.
    escaped = b"".join({0: b"\x00\xff", 255: b"\xff\x00"}.get(byte, bytes([byte])) for byte in value)
    return escaped + b"\x00\x01"


def _to_signed(value: int) -> bytes:
    magnitude = ~value if value < 0 else value
    # The first bits say how many bytes there are, seven bits of the number to each; a negative one has all inverted.
    length = magnitude.bit_length() // 7 + 1
    digits = bytearray(value.to_bytes(max(length, 2), "big", signed=True)[-length:])
    header = ((1 << length) - 1) << (16 - length)
    digits[0] ^= header >> 8
    if length > 1:
        digits[1] ^= header & 0xFF
    return bytes(digits)
