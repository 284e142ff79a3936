"""TFRecord files: each record with its length, both with a checksum.

    uint64  length                  little endian
    uint32  masked crc32c of length
    bytes   data
    uint32  masked crc32c of data

Source: tensorflow/core/lib/io/record_reader.cc, record_writer.cc; tf.data.TFRecordDataset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import compress

import google_crc32c
import numpy as np

from lockstep import _decoded_size
from lockstep.data._files.block_reader import BlockReader
from lockstep.data._files.stream import Stream, as_path
from lockstep.errors import InputError

_CHUNK = 1 << 18
_BLOCK = 4096  # records in a block
_HEADER = 12
_FOOTER = 4
_MASK = 0xA282EAD8
_KNOWN_LENGTHS = 1 << 16

_crc: Callable[[bytes], int] = google_crc32c.value  # pyright: ignore[reportUnknownMemberType]


def open_tfrecord(path: object, compression_type: str | None = "") -> TFRecordReader:
    """Opens a TFRecord file.

    Args:
        path: The file.
        compression_type: "" (or `None`), "GZIP" or "ZLIB".

    Raises:
        DataNotFoundError: If there is no such file.
    """
    return TFRecordReader(Stream(as_path(path), compression_type))


def masked_crc(data: bytes) -> int:
    """Returns the masked crc32c of some bytes, as TFRecord files hold it."""
    crc = _crc(data)
    # Masked, because a file may hold checksums as data (record_writer.cc).
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


class TFRecordReader(BlockReader):
    """A reader of a TFRecord file that verifies every checksum; a record is `bytes`."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._chunk = b""
        self._at = 0  # index in the chunk of the next record
        self._offset = 0  # position in the file of the next record
        self._lengths: dict[bytes, int] = {}  # of headers that have been verified

    def parse(self) -> tuple[Sequence[bytes], Sequence[int], int]:
        """Returns the records that lie whole in the chunk, at least one, or none at the end of the file."""
        while True:
            records, ends = self._walk()
            if records:
                return self._verify(records, ends)
            if not self._fill():
                return (), (), self._offset

    def forget(self, position: int) -> None:
        """Drops the chunk."""
        self._chunk, self._at, self._offset = b"", 0, position

    def reopen(self) -> TFRecordReader:
        """Returns another reader of the file."""
        return open_tfrecord(self.path, self._stream.compression)

    def _walk(self) -> tuple[list[bytes], list[int]]:
        """Cuts records out of the chunk; the hot loop, so it does nothing else."""
        chunk, at, lengths = self._chunk, self._at, self._lengths
        last = len(chunk) - _FOOTER
        records: list[bytes] = []
        ends: list[int] = []
        for _ in range(_BLOCK):
            begin = at + _HEADER
            header = chunk[at:begin]
            # Records of one length have the same header: its checksum is computed once.
            length = lengths.get(header)
            if length is None:
                length = self._length(header)
                if length is None:
                    break
            end = begin + length
            if end > last:
                break
            records.append(chunk[begin:end])
            ends.append(end)
            at = end + _FOOTER
        return records, ends

    def _length(self, header: bytes) -> int | None:
        """Returns the length that a whole, genuine header states."""
        if len(header) < _HEADER:
            return None
        length, crc = struct.unpack("<QI", header)
        # A wrong length would be followed into the middle of the data, and maybe to gigabytes.
        if crc != masked_crc(header[:8]):
            return None
        # Records of many lengths must not fill the memory with headers.
        if len(self._lengths) >= _KNOWN_LENGTHS:
            self._lengths.clear()
        self._lengths[header] = length
        return length

    def _verify(self, records: list[bytes], ends: list[int]) -> tuple[Sequence[bytes], Sequence[int], int]:
        """Returns the records up to the first with a wrong checksum."""
        # Checksums of a whole chunk at once, in numpy: one by one they would cost more than reading.
        good = _first_wrong(self._chunk, records, ends)
        if good == 0:
            raise self._broken_error("the checksum of its data is wrong")
        shift = self._offset - self._at
        starts = [self._offset, *(shift + end + _FOOTER for end in ends[: good - 1])]
        self._at = ends[good - 1] + _FOOTER
        self._offset = shift + self._at
        return records[:good], starts, self._offset

    def _fill(self) -> bool:
        """Reads on until the next record is whole; returns whether there is one."""
        rest = self._chunk[self._at :]
        needed = self._needed_bytes(rest)
        more = self._stream.read(max(needed - len(rest), _CHUNK))
        self._chunk, self._at = rest + more, 0
        if not self._chunk:
            return False
        if not more and len(rest) < needed:
            raise self._broken_error(f"the file ends after {len(rest)} of its {needed} bytes")
        return True

    def _needed_bytes(self, rest: bytes) -> int:
        """Returns how many bytes the next record takes, as far as can be told."""
        header = rest[:_HEADER]
        if len(header) < _HEADER:
            return _HEADER + _FOOTER
        length = self._length(header)
        if length is None:
            raise self._broken_error("the checksum of its length is wrong")
        if self._stream.compression:
            what = f"{self.path}: record {self.number}, at byte {self._offset}, whose header says {length} bytes"
            _decoded_size.check(length, what)
        return _HEADER + length + _FOOTER

    def _broken_error(self, reason: str) -> InputError:
        # At the first byte the file is more likely of another kind than damaged.
        hint = "" if self._offset else " If it is compressed, or no TFRecord file, say so or leave it out."
        return InputError(
            f"{self.path}: record {self.number}, at byte {self._offset}, is broken: {reason}. "
            f"Copy or write the file again.{hint}"
        )


def _first_wrong(chunk: bytes, records: list[bytes], ends: list[int]) -> int:
    """Returns the index of the first record whose checksum is wrong, or their number."""
    crc = np.fromiter(map(_crc, records), np.uint32, len(records))
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(_MASK)
    where = np.array(ends)[:, None] + np.arange(_FOOTER)
    stored = np.frombuffer(chunk, np.uint8)[where].view("<u4")[:, 0]
    wrong = masked != stored
    return next(compress(range(len(records)), wrong), len(records)) if wrong.any() else len(records)
