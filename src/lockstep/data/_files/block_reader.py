"""A reader that parses many records at a time and hands them out in portions."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from lockstep.data._files.reader import to_text_array
from lockstep.data._files.stream import Stream
from lockstep.errors import InputError


class BadRecord(InputError):
    """The error of `convert` for a record that it cannot convert.

    Args:
        index: Which one of the portion.
        message: What is wrong with it.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class BlockReader(abc.ABC):
    """A reader that parses a block of records at a time and returns portions of it.

    Args:
        stream: Where the bytes come from.
        first: Position of the first record.
    """

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
        if self._index == len(self._records) and not self._refill():
            return None
        portion = self._records[self._index : self._index + max(limit, 1)]
        try:
            values = self.convert(portion)
        # The good records before it come first; the next call begins with the bad one and raises.
        except BadRecord as bad:
            if bad.index == 0:
                raise InputError(str(bad)) from bad
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
            self._before = self._count(self.tell()) - self._index
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
        """Returns parsed records as arrays.

        Raises:
            BadRecord: If one of them cannot be converted; those before it can.
        """
        return to_text_array(portion)

    def _refill(self) -> bool:
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
        return len(self._records) > 0

    def _count(self, position: int) -> int:
        """Returns how many records lie before a position."""
        # Another reader, because this one must not lose its place.
        other = self.reopen()
        try:
            count = 0
            while other.tell() < position and other.read(1) is not None:
                count += 1
            return count
        finally:
            other.close()
