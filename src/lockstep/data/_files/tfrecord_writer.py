"""Writing TFRecord files."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from lockstep._decoded_size import WINDOW_BITS
from lockstep.data._files.stream import as_path, check_compression
from lockstep.data._files.tfrecord import masked_crc
from lockstep.errors import ArgumentError


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
        _check("compression_level", self.compression_level, -1, 9)
        _check("window_bits", self.window_bits, 9, 15)
        _check("mem_level", self.mem_level, 1, 9)
        _check("compression_strategy", self.compression_strategy, 0, 4)


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


def _check(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise ArgumentError(f"{name} is a whole number from {low} to {high}, or None; received {value!r}.")
