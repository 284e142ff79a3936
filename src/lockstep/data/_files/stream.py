"""Files as streams of bytes, and readers of their records."""

from __future__ import annotations

import abc
import glob
import os
import weakref
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, Protocol

import numpy as np

from lockstep._decoded_size import WINDOW_BITS
from lockstep._types import ArrayLike
from lockstep.errors import ArgumentError, DataNotFoundError, InputError

# Bytes of a read; larger ones are no faster, and hold more memory than is asked for.
_PIECE = 1 << 20


def matching_files(patterns: ArrayLike) -> list[str]:
    """Returns the names of the files that match any of some patterns, sorted.

    `*` and `?` match within one level of folders, names that begin with a dot included; `[ab]`, `[a-z]` and `[^a]`
    match one character.

    Args:
        patterns: A pattern, or several: `str`, `bytes`, paths, or an array of text.

    Raises:
        DataNotFoundError: If nothing matches one of them.

    Source: tf.io.matching_files, tf.io.gfile.glob, tf.data.Dataset.list_files.
    """
    # An element of a dataset of patterns is an array of bytes.
    if isinstance(patterns, np.ndarray):
        patterns = np.atleast_1d(patterns).tolist()
    several = isinstance(patterns, Iterable) and not isinstance(patterns, (str, bytes))
    paths = [as_path(pattern) for pattern in patterns] if several else [as_path(patterns)]
    if not paths:
        raise ArgumentError("at least one pattern is needed; received none.")
    names: list[str] = []
    for path in paths:
        # TensorFlow's patterns negate by [^a], Python's by [!a].
        matches = glob.glob(path.replace("[^", "[!"), include_hidden=True)
        if not matches:
            raise DataNotFoundError(
                f"no file matches {path!r}. Check the pattern and the folder; each worker needs the files under the "
                f"same names."
            )
        names += matches
    return sorted(names)


class Reader(Protocol):
    """A reader of the records of one file in order, several at a time.

    Attributes:
        number: Ordinal of the next record in its file, from 0, for messages. After a `seek` it may cost a pass over
            what lies before.
    """

    @property
    def number(self) -> int: ...

    def read(self, limit: int) -> Any | None:
        """Returns the next records, at least one and at most `limit`, or `None` at the end of the file.

        They come as a pytree of numpy arrays with a common leading axis; text is an object array of `bytes`.
        Good records before a broken one are returned; the call that begins with the broken one raises.

        Raises:
            InputError: If the next record is broken.
        """
        ...

    def tell(self) -> int:
        """Returns where the next record begins, for `seek` of any reader of the same file with the same options."""
        ...

    def seek(self, position: int) -> None:
        """Continues from a position that `tell` returned."""
        ...

    def close(self) -> None:
        """Frees the file; a second call does nothing."""
        ...


def to_text_array(values: Sequence[bytes]) -> np.ndarray[Any, np.dtype[Any]]:
    """Returns an object array of `bytes`, shape (k,)."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


class Stream:
    """The content of a file; its compression is "" (or `None`), "GZIP" or "ZLIB"."""

    def __init__(self, path: str, compression: str | None = "") -> None:
        self.path = path
        self.compression = check_compression(compression)
        self._file = _open(path)
        # Closes the file of a reading that was given up. A __del__ would be too late where the stream is part of a
        # reference cycle: the collector may finalize the file first, and Python then warns of an unclosed file.
        self._close = weakref.finalize(self, self._file.close)
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
            if position > (self.size() or 0):
                raise self._too_short(position)
            self._file.seek(position)
            self._position = position
            return
        # zlib cannot go back: from the beginning again.
        if position < self._position:
            self._file.seek(0)
            self._inflater.restart()
            self._position = 0
        while self._position < position:
            if not self.read(min(_PIECE, position - self._position)):
                raise self._too_short(position)

    def size(self) -> int | None:
        """Returns the number of bytes, or `None` if only reading can tell."""
        return os.fstat(self._file.fileno()).st_size if self._inflater is None else None

    def close(self) -> None:
        """Closes the file."""
        self._close()

    def _piece(self, size: int) -> bytes:
        try:
            return self._file.read(size) if self._inflater is None else self._inflater.read(self._file, size)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error}. Check the disk or the mount.") from error

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
                # The bytes that zlib still holds when the file has ended.
                data = self._part.decompress(b"", size) if self._begun and not self._part.eof else b""
                # Fewer records than were written must not pass for the end of the data.
                if not data and self._begun and not self._part.eof:
                    raise self._broken_error("it ends before the compressed data does")
                return data
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
            if data:
                return data

    def _broken_error(self, reason: str) -> InputError:
        form = "GZIP" if self._window_bits == WINDOW_BITS["GZIP"] else "ZLIB"
        return InputError(
            f"{self._path} cannot be decompressed as {form}: {reason}. Give the compression type that it was written "
            f"with, or write the file again."
        )


def as_path(path: object) -> str:
    """Returns a path as `str`; elements of a dataset of file names are `bytes`."""
    if isinstance(path, (str, bytes, os.PathLike)):
        return os.fsdecode(path)  # pyright: ignore[reportUnknownArgumentType]
    raise ArgumentError(f"a file name must be str, bytes or a path, not {type(path).__name__}: {path!r}.")


def _open(path: str) -> BinaryIO:
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
    """Returns "", "GZIP" or "ZLIB"; raises `ArgumentError` for anything else."""
    if compression in (None, "", "GZIP", "ZLIB"):
        return compression or ""
    raise ArgumentError(f'a compression type is "", "GZIP" or "ZLIB", not {compression!r}.')


class BadRecord(InputError):
    """An error of the record of a portion, by index, that cannot be converted; what follows it can be read."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class BlockReader(abc.ABC):
    """A reader that parses a block of records at a time, from the byte `first` on, and returns portions of it."""

    def __init__(self, stream: Stream, first: int = 0) -> None:
        self.path = stream.path
        self._stream = stream
        self._first = first
        self._records: Sequence[Any] = ()
        self._starts: Sequence[int] = ()
        self._index = 0
        self._before: int | None = 0
        self._next = first
        self._failure: InputError | None = None

    def read(self, limit: int) -> Any | None:
        """Returns at least one and at most `limit` records, or `None` at the end. See `Reader.read`."""
        if self._index == len(self._records):
            # A broken file stays broken: the parser is not asked again at a place it cannot continue from.
            if self._failure is not None:
                raise self._failure
            if self._before is not None:
                self._before += len(self._records)
            self._records, self._index = (), 0
            try:
                self._records, self._starts, self._next = self.parse()
            except InputError as error:
                self._failure = error
                raise
            if not self._records:
                return None
        portion = self._records[self._index : self._index + max(limit, 1)]
        try:
            values = self.convert(portion)
        # The good records before it come first; the next call begins with the bad one and raises.
        except BadRecord as bad:
            if bad.index == 0:
                # Whoever goes on, goes on behind it, as in tf.data.
                self._index += 1
                raise
            portion = portion[: bad.index]
            values = self.convert(portion)
        self._index += len(portion)
        return values

    def tell(self) -> int:
        """Returns the byte (after decompression) where the next record begins."""
        return self._starts[self._index] if self._index < len(self._records) else self._next

    def seek(self, position: int) -> None:
        """Continues at such a byte."""
        # A restored cursor often stands there already: keep what has been parsed.
        if position == self.tell():
            return
        self._stream.seek(position)
        self._records, self._starts, self._index, self._failure = (), (), 0, None
        # Counting takes a pass over the file, and only an error message needs the number.
        self._before = 0 if position == self._first else None
        self._next = position
        self.forget(position)

    @property
    def number(self) -> int:
        """Returns the ordinal of the next record; the first call after a seek counts the records before it."""
        if self._before is None:
            position = self.tell()
            # Another reader, because this one must not lose its place.
            other = self.reopen()
            try:
                count = 0
                while other.tell() < position and other.read(1) is not None:
                    count += 1
            finally:
                other.close()
            self._before = count - self._index
        return self._before + self._index

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    @abc.abstractmethod
    def parse(self) -> tuple[Sequence[Any], Sequence[int], int]:
        """Returns the next records, where each begins, and where the one after them will; no records at the end.

        A broken record that is not the first of them ends the block: the next call raises.
        """

    @abc.abstractmethod
    def forget(self, position: int) -> None:
        """Drops the bytes that were read ahead: the stream has moved to `position`."""

    @abc.abstractmethod
    def reopen(self) -> BlockReader:
        """Returns another reader of the same file, at its beginning."""

    def convert(self, portion: Sequence[Any]) -> Any:
        """Returns parsed records as arrays; raises `BadRecord` for the first that cannot be converted."""
        return to_text_array(portion)
