"""TFRecord files: each record with its length, both with a checksum.

    uint64  length                  little endian
    uint32  masked crc32c of length
    bytes   data
    uint32  masked crc32c of data

Source: tensorflow/core/lib/io/record_reader.cc, record_writer.cc; tf.data.TFRecordDataset.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from lockstep import _decoded_size
from lockstep._decoded_size import WINDOW_BITS
from lockstep.data._files.stream import BlockReader, Stream, as_path, check_compression
from lockstep.errors import ArgumentError, InputError

_CHUNK = 1 << 18
_BLOCK = 4096  # records in a block
_HEADER = 12
_FOOTER = 4
_MASK = 0xA282EAD8
_KNOWN_LENGTHS = 1 << 16
# Of zlib's options.
_LIMITS = (("compression_level", -1, 9), ("window_bits", 9, 15), ("mem_level", 1, 9), ("compression_strategy", 0, 4))

_crc: Callable[[bytes], int] = google_crc32c.value  # pyright: ignore[reportUnknownMemberType]


def open_tfrecord(path: object, compression_type: str | None = "") -> TFRecordReader:
    """Opens a TFRecord file."""
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
                # Checksums of a whole chunk at once, in numpy: one by one they would cost more than reading.
                good = _first_wrong(self._chunk, records, ends)
                if good == 0:
                    raise self._broken_error("the checksum of its data is wrong")
                shift = self._offset - self._at
                starts = [self._offset, *(shift + end + _FOOTER for end in ends[: good - 1])]
                self._at = ends[good - 1] + _FOOTER
                self._offset = shift + self._at
                return records[:good], starts, self._offset
            # Reads on until the next record is whole.
            rest = self._chunk[self._at :]
            needed = self._needed_bytes(rest)
            more = self._stream.read(max(needed - len(rest), _CHUNK))
            self._chunk, self._at = rest + more, 0
            if not self._chunk:
                return (), (), self._offset
            if not more and len(rest) < needed:
                raise self._broken_error(f"the file ends after {len(rest)} of its {needed} bytes")

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


@dataclass(frozen=True)
class TFRecordOptions:
    """Compression options of a TFRecord file.

    Args:
        compression_type: "" (or `None`), "GZIP" or "ZLIB".
        compression_level: 0 (none) to 9 (smallest); -1 or `None` is zlib's default.
        window_bits: 9 to 15: the logarithm of how far back repetitions are sought; `None` is 15.
        mem_level: 1 to 9: how much memory compressing may take; `None` is zlib's default.
        compression_strategy: One of zlib's `Z_..._STRATEGY`; `None` is zlib's default.

    Source: tf.io.TFRecordOptions, without the sizes of TensorFlow's own buffers.
    """

    compression_type: str | None = ""
    compression_level: int | None = None
    window_bits: int | None = None
    mem_level: int | None = None
    compression_strategy: int | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression_type)
        for name, low, high in _LIMITS:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ArgumentError(f"{name} is a whole number from {low} to {high}, or None; received {value!r}.")


class TFRecordWriter:
    """A writer of a TFRecord file, which it replaces; a context manager.

    Args:
        path: The file.
        options: `None`, "GZIP", "ZLIB" or a `TFRecordOptions`.

    Raises:
        ArgumentError: If the file cannot be written or the options are none.

    Source: tf.io.TFRecordWriter. Uncompressed files are the same byte for byte.
    """

    def __init__(self, path: object, options: str | TFRecordOptions | None = None) -> None:
        self._path = as_path(path)
        self._compressor = _compressor(options)
        self._file = _open(self._path)

    def write(self, record: bytes | bytearray | memoryview | str) -> None:
        """Appends a record; a `str` is written as UTF-8."""
        self._check_open()
        data = _as_bytes(record)
        length = struct.pack("<Q", len(data))
        # One write per record: a process that dies leaves whole records before the last.
        framed = b"".join((length, _crc_field(length), data, _crc_field(data)))
        self._file.write(framed if self._compressor is None else self._compressor.compress(framed))

    def flush(self) -> None:
        """Flushes the written records to the operating system."""
        self._check_open()
        if self._compressor is not None:
            # Ends on a byte boundary, so that a reader gets all records written so far.
            self._file.write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        """Completes the file; a second call does nothing."""
        if self._file.closed:
            return
        try:
            if self._compressor is not None:
                self._file.write(self._compressor.flush())
        finally:
            self._file.close()

    def __enter__(self) -> TFRecordWriter:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._file.closed:
            raise ArgumentError(f"the writer of {self._path} has been closed. Write before close(), or open another.")


def _open(path: str) -> BinaryIO:
    try:
        return Path(path).open("wb", buffering=1 << 18)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error}. Create its folder, or choose another.") from error


def _crc_field(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc(data))


def _as_bytes(record: object) -> bytes:
    if isinstance(record, bytes):
        return record
    if isinstance(record, str):
        return record.encode()
    if isinstance(record, (bytearray, memoryview)):
        return bytes(record)
    raise ArgumentError(
        f"a record is bytes, not {type(record).__name__}. Write example.SerializeToString(), or an array's tobytes()."
    )


def _compressor(options: str | TFRecordOptions | None) -> Any:
    """Returns zlib's compressing object, or `None`."""
    if options is None or isinstance(options, str):
        options = TFRecordOptions(options)
    if not isinstance(options, TFRecordOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f'options are None, "GZIP", "ZLIB" or a TFRecordOptions, not {options!r}.')
    if not options.compression_type:
        return None
    # zlib takes the format and the window as one number: 31 is gzip with a window of 2**15.
    bits = WINDOW_BITS[options.compression_type] - 15 + (15 if options.window_bits is None else options.window_bits)
    return zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if options.compression_level is None else options.compression_level,
        zlib.DEFLATED,
        bits,
        zlib.DEF_MEM_LEVEL if options.mem_level is None else options.mem_level,
        options.compression_strategy or zlib.Z_DEFAULT_STRATEGY,
    )
