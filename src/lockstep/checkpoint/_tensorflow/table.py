"""Tables: sorted keys and values in blocks, as LevelDB and TensorFlow write them.

A table ends with a footer, which says where the index block is; each entry of that says where a block of entries is.
Keys share their beginnings with the key before. Every block has a checksum. Nothing in a file is trusted: each length
is compared with what is there before it is used.

Source: tensorflow/core/lib/io/format.cc, block.cc, table_builder.cc; LevelDB's doc/table_format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c

from lockstep.checkpoint._tensorflow.snappy import decompress

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48
# Behind each block: its kind of compression, and the checksum of both.
_TRAILER = struct.Struct("<BI")
_PLAIN, _SNAPPY = 0, 1
# What is added to a rotated checksum, so that one of bytes which hold checksums is another number.
_MASK_DELTA = 0xA282EAD8


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Returns all entries of a table, in order.

    Raises:
        ValueError: If the bytes are no whole table.
    """
    if len(data) < _FOOTER or not data.endswith(MAGIC):
        raise ValueError("it does not end as a table does; it may have been cut off")
    footer = data[-_FOOTER:]
    _, position = _handle(footer, 0)  # Of the block of statistics, which TensorFlow leaves empty.
    index, _ = _handle(footer, position)
    entries: dict[bytes, bytes] = {}
    last: bytes | None = None
    for _, value in _entries(_block(data, *index)):
        for key, entry in _entries(_block(data, *_handle(value, 0)[0])):
            # A table is sorted; another order means that a block was read twice, or is of another table.
            if last is not None and key <= last:
                raise ValueError("its keys are not in order")
            last = key
            entries[key] = entry
    return entries


def checksum(data: bytes | memoryview) -> int:
    """Returns the CRC-32C of some bytes."""
    return int(google_crc32c.value(bytes(data)))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def extend_checksum(known: int, data: bytes | memoryview) -> int:
    """Returns the CRC-32C of bytes that follow those of a known one."""
    return int(google_crc32c.extend(known, bytes(data)))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def mask(crc: int) -> int:
    """Returns a checksum as files hold it. Source: tensorflow/core/lib/hash/crc32c.h."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the number of seven bits a byte that begins at `position`, and where it ends.

    Raises:
        ValueError: If the bytes end before, or it has more than 64 bits.
    """
    value = shift = 0
    while shift < 64:
        if position >= len(data):
            raise ValueError("it ends amid a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number in it has more than 64 bits")


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER.size > len(data) - _FOOTER:
        raise ValueError(f"a block of {size} bytes at {offset} lies beyond its end")
    kind, expected = _TRAILER.unpack_from(data, end)
    # The byte that names the compression belongs to what is summed up.
    if mask(checksum(data[offset : end + 1])) != expected:
        raise ValueError(f"the checksum of its block at {offset} is wrong")
    if kind == _PLAIN:
        return data[offset:end]
    if kind == _SNAPPY:
        return decompress(data[offset:end])
    raise ValueError(f"its block at {offset} has a compression that is unknown, {kind}")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    # At the end: places where a key begins anew, four bytes each, and their number. Reading all needs none of them.
    count = int.from_bytes(block[-4:], "little") if len(block) >= 4 else -1
    end = len(block) - 4 * (count + 1)
    if count < 0 or end < 0:
        raise ValueError("a block of it does not say where its entries end")
    key, position = b"", 0
    while position < end:
        shared, position = varint(block, position)
        unshared, position = varint(block, position)
        length, position = varint(block, position)
        if shared > len(key) or position + unshared + length > end:
            raise ValueError("an entry of it is longer than its block")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length
