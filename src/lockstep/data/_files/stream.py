"""The bytes of a file, decompressed on the way, at any position."""

from __future__ import annotations

import os
import zlib
from typing import BinaryIO

from lockstep._decoded_size import WINDOW_BITS
from lockstep.errors import ArgumentError, DataNotFoundError, InputError

# Bytes of a read; larger ones are no faster, and hold more memory than is asked for.
_PIECE = 1 << 20


class Stream:
    """The content of a file.

    Args:
        path: The file.
        compression: "" (or `None`), "GZIP" or "ZLIB".

    Raises:
        DataNotFoundError: If there is no such file.
        InputError: If it cannot be read.
        ArgumentError: If the compression is another one.
    """

    def __init__(self, path: str, compression: str | None = "") -> None:
        self.path = path
        self.compression = check_compression(compression)
        self._file = open_file(path)
        self._position = 0
        self._inflater = _Inflater(path, WINDOW_BITS[self.compression]) if self.compression else None

    def read(self, size: int) -> bytes:
        """Returns the next `size` bytes; fewer only at the end of the file."""
        pieces: list[bytes] = []
        while size > 0 and (piece := self._piece(min(size, _PIECE))):
            pieces.append(piece)
            size -= len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._position += len(data)
        return data

    def seek(self, position: int) -> None:
        """Continues at a byte of the decompressed content; going back in a compressed file reads it again."""
        # A plain file is positioned directly; compressed bytes have no index.
        if self._inflater is None:
            self._seek_plain(position)
        else:
            self._seek_compressed(self._inflater, position)

    def size(self) -> int | None:
        """Returns the number of bytes, or `None` if only reading can tell."""
        return os.fstat(self._file.fileno()).st_size if self._inflater is None else None

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __del__(self) -> None:
        """Closes the file of a reading that was given up, without the warning that Python would give."""
        if hasattr(self, "_file"):
            self._file.close()

    def _piece(self, size: int) -> bytes:
        try:
            return self._file.read(size) if self._inflater is None else self._inflater.read(self._file, size)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error}. Check the disk or the mount.") from error

    def _seek_plain(self, position: int) -> None:
        if position > (self.size() or 0):
            raise self._too_short(position)
        self._file.seek(position)
        self._position = position

    def _seek_compressed(self, inflater: _Inflater, position: int) -> None:
        # zlib cannot go back: from the beginning again.
        if position < self._position:
            self._file.seek(0)
            inflater.restart()
            self._position = 0
        while self._position < position:
            if not self.read(min(_PIECE, position - self._position)):
                raise self._too_short(position)

    def _too_short(self, position: int) -> InputError:
        return InputError(
            f"{self.path} has no byte {position}, where reading was to continue: it is shorter than it was when the "
            f"position was saved. Restore the file, or start from the beginning."
        )


class _Inflater:
    """A decompressor of files that may consist of several compressed parts, as `cat a.gz b.gz` writes them."""

    def __init__(self, path: str, window_bits: int) -> None:
        self._path = path
        self._window_bits = window_bits
        self.restart()

    def restart(self) -> None:
        self._part = zlib.decompressobj(self._window_bits)
        self._pending = b""
        self._begun = False

    def read(self, file: BinaryIO, size: int) -> bytes:
        """Returns 1 to `size` bytes, or none at the end."""
        while True:
            source = self._pending or file.read(_PIECE >> 2)
            if not source:
                return self._end(size)
            data = self._inflate(source, size)
            if data:
                return data

    def _inflate(self, source: bytes, size: int) -> bytes:
        # A file of several parts: each has its own header and checksum.
        if self._part.eof:
            source = source.lstrip(b"\0")  # gzip pads to whole blocks of a tape
            self._part = zlib.decompressobj(self._window_bits)
            self._begun = False
        self._begun = self._begun or bool(source)
        try:
            data = self._part.decompress(source, size)
        except zlib.error as error:
            raise self._broken_error(str(error)) from error
        # Bytes of the next part, or bytes that the size limit of this call left over.
        self._pending = self._part.unused_data or self._part.unconsumed_tail
        return data

    def _end(self, size: int) -> bytes:
        """Returns the bytes that zlib still holds when the file has ended."""
        data = self._part.decompress(b"", size) if self._begun and not self._part.eof else b""
        # Fewer records than were written must not pass for the end of the data.
        if not data and self._begun and not self._part.eof:
            raise self._broken_error("it ends before the compressed data does")
        return data

    def _broken_error(self, reason: str) -> InputError:
        form = "GZIP" if self._window_bits == WINDOW_BITS["GZIP"] else "ZLIB"
        return InputError(
            f"{self._path} cannot be decompressed as {form}: {reason}. Give the compression type that it was written "
            f"with, or write the file again."
        )


def as_path(path: object) -> str:
    """Returns a path as `str`; elements of a dataset of file names are `bytes`.

    Raises:
        ArgumentError: If it is no path.
    """
    if isinstance(path, (str, bytes, os.PathLike)):
        return os.fsdecode(path)  # pyright: ignore[reportUnknownArgumentType]
    raise ArgumentError(f"a file name must be str, bytes or a path, not {type(path).__name__}: {path!r}.")


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading, unbuffered.

    Raises:
        DataNotFoundError: If there is none.
        InputError: If it cannot be opened.
    """
    try:
        # Readers ask for large chunks: a buffer would only copy them once more.
        return open(path, "rb", buffering=0)
    except FileNotFoundError as error:
        raise file_not_found(path) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be opened: {error}. Give the name of a file that can be read.") from error


def file_not_found(path: str) -> DataNotFoundError:
    """Returns the error for a file that is not there."""
    return DataNotFoundError(f"there is no file {path}. Check the name; each worker needs the file under that name.")


def check_compression(compression: str | None) -> str:
    """Returns "", "GZIP" or "ZLIB".

    Raises:
        ArgumentError: If it is none of them.
    """
    if compression in (None, "", "GZIP", "ZLIB"):
        return compression or ""
    raise ArgumentError(f'a compression type is "", "GZIP" or "ZLIB", not {compression!r}.')
