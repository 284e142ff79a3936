"""Decompression of Snappy blocks, which tables may hold.

TensorFlow writes indices without compression since 1.2; older ones, and other writers, compress them. The blocks are
small, so that a decoder of the format's four elements will do.

Source: https://github.com/google/snappy/blob/main/format_description.txt
"""

from __future__ import annotations

# No element of the format is expanded more: a copy of up to 64 bytes takes at least 3, or 11 bytes 2.
_MOST_EXPANDED = 64


def decompress(data: bytes) -> bytes:
    """Returns what a block of Snappy's raw format holds.

    Raises:
        ValueError: If it is no such block.
    """
    length, position = _varint(data)
    if length > _MOST_EXPANDED * len(data):
        raise ValueError(f"a compressed block of {len(data)} bytes claims to hold {length}")
    out = bytearray()
    while position < len(data):
        kind, size, offset, position = _element(data, position)
        if kind == 0:
            if position + size > len(data):
                raise ValueError("a compressed block ends amid its bytes")
            out += data[position : position + size]
            position += size
        elif not 0 < offset <= len(out):
            raise ValueError("a compressed block refers to bytes before its beginning")
        else:
            # A copy may overlap what it writes: then it repeats the last `offset` bytes.
            start = len(out) - offset
            pattern = bytes(out[start : start + size])
            out += (pattern * (size // len(pattern) + 1))[:size]
        if len(out) > length:
            break
    if len(out) != length:
        raise ValueError(f"a compressed block holds {len(out)} bytes, and says {length}")
    return bytes(out)


def _element(data: bytes, position: int) -> tuple[int, int, int, int]:
    """Returns the kind, length and offset of an element, and where what follows its tag begins."""
    tag = data[position]
    position += 1
    kind, number = tag & 3, tag >> 2
    if kind == 0:
        if number < 60:
            return 0, number + 1, 0, position
        # 60 to 63: the length less one is in the next 1 to 4 bytes.
        extra = number - 59
        return 0, _little(data, position, extra) + 1, 0, position + extra
    if kind == 1:
        return 1, (number & 7) + 4, (number >> 3) << 8 | _little(data, position, 1), position + 1
    size = 2 if kind == 2 else 4
    return kind, number + 1, _little(data, position, size), position + size


def _little(data: bytes, position: int, count: int) -> int:
    if position + count > len(data):
        raise ValueError("a compressed block ends amid a length")
    return int.from_bytes(data[position : position + count], "little")


def _varint(data: bytes) -> tuple[int, int]:
    value = 0
    # 32 bits take five groups of seven.
    for index, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, index + 1
    raise ValueError("a compressed block does not begin with its length")
