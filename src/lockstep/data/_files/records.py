"""Lines of text files and records of a fixed length.

Source: tf.data.TextLineDataset, FixedLengthRecordDataset. As there, a line ends at a newline, carriage returns are
dropped wherever they stand, empty lines are elements, and a last line needs no newline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

from lockstep import _decoded_size
from lockstep.data._files.stream import BlockReader, Stream, as_path
from lockstep.errors import ArgumentError, InputError

_CHUNK = 1 << 18


def open_text(path: object, compression_type: str | None = "") -> TextReader:
    """Opens a text file; its lines end at a newline."""
    return TextReader(Stream(as_path(path), compression_type))


def starts_of(lines: Iterable[bytes], offset: int) -> list[int]:
    """Returns where each of some adjacent pieces begins, and where the last one ends."""
    return list(accumulate(map(len, lines), initial=offset))


class TextReader(BlockReader):
    """A reader of the lines of a file; a line is `bytes` without its end."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._rest: list[bytes] = []  # pieces of a line that has not ended
        self._length = 0  # of these pieces
        self._offset = 0  # where that line begins

    def parse(self) -> tuple[Sequence[bytes], Sequence[int], int]:
        """Returns the lines that end in the next chunk that ends any."""
        while chunk := self._stream.read(_CHUNK):
            # Split once per chunk: joining a long line chunk by chunk would be quadratic.
            if b"\n" in chunk:
                text = b"".join((*self._rest, chunk))
                lines = text.split(b"\n")
                # After the last newline: the begun line, maybe empty.
                rest = lines.pop()
                starts = [start + index for index, start in enumerate(starts_of(lines, self._offset))]
                self._rest, self._length, self._offset = [rest], len(rest), starts.pop()
                if b"\r" in text:
                    lines = [line.replace(b"\r", b"") for line in lines]
                return lines, starts, self._offset
            self._rest.append(chunk)
            self._length += len(chunk)
            # A few bytes can stand for a line of gigabytes; of a plain file the line is on the disk.
            if self._stream.compression:
                what = f"{self.path}: line {self.number}, at byte {self._offset}, which has not ended by then"
                _decoded_size.check(self._length, what)
        # The line that the file ends with, if it has no newline.
        text, start = b"".join(self._rest), self._offset
        self.forget(start + len(text))
        line = text.replace(b"\r", b"")
        return ([line], [start], self._offset) if line else ((), (), self._offset)

    def forget(self, position: int) -> None:
        """Drops the line that has been begun."""
        self._rest, self._length, self._offset = [], 0, position

    def reopen(self) -> TextReader:
        """Returns another reader of the file."""
        return open_text(self.path, self._stream.compression)


def open_fixed(
    path: object,
    record_bytes: int,
    header_bytes: int = 0,
    footer_bytes: int = 0,
    compression_type: str | None = "",
) -> FixedLengthReader:
    """Opens a file of records of `record_bytes` bytes, between a header and a footer that are skipped.

    Raises:
        ArgumentError: If a length is negative, or that of the records is not positive.
        DataNotFoundError: If there is no such file.
        InputError: If what lies between header and footer is no whole number of records. Of a compressed file this
            shows only at its end.
    """
    for name, value, least in (("record", record_bytes, 1), ("header", header_bytes, 0), ("footer", footer_bytes, 0)):
        if value < least:
            raise ArgumentError(f"{name}_bytes is at least {least}; received {value}.")
    return FixedLengthReader(Stream(as_path(path), compression_type), record_bytes, header_bytes, footer_bytes)


class FixedLengthReader(BlockReader):
    """A reader of records of a fixed length; a record is `bytes`."""

    def __init__(self, stream: Stream, record_bytes: int, header_bytes: int, footer_bytes: int) -> None:
        super().__init__(stream, header_bytes)
        self._lengths = (record_bytes, header_bytes, footer_bytes)
        # findall cuts a chunk in one call, faster than slicing in a loop. The repeat count of `re` has a limit.
        self._cut = re.compile(b".{%d}" % record_bytes, re.DOTALL).findall if record_bytes < 1 << 16 else None
        self._chunk = b""
        self._offset = 0  # of the chunk; the header has yet to be skipped
        self._ended = False
        # Wrong lengths show before the first record, where the file is not compressed.
        if (size := stream.size()) is not None:
            self._check_size(size)

    def parse(self) -> tuple[Sequence[bytes], Sequence[int], int]:
        """Returns the records that are whole and surely no part of the footer."""
        record, header, footer = self._lengths
        if self._offset < header:
            self._offset += len(self._stream.read(header - self._offset))
            if self._offset < header:
                self._check_size(self._offset)
        needed = record + footer
        while not (whole := max(len(self._chunk) - footer, 0) // record):
            if self._ended:
                return (), (), self._offset
            self._chunk += self._stream.read(max(needed - len(self._chunk), _CHUNK))
            # Only the end of the file gives fewer bytes than were asked for.
            self._ended = len(self._chunk) < needed
            if self._ended:
                self._check_size(self._offset + len(self._chunk))
        start, body = self._offset, self._chunk[: whole * record]
        records = self._cut(body) if self._cut else [body[at : at + record] for at in range(0, len(body), record)]
        self._chunk, self._offset = self._chunk[len(body) :], start + len(body)
        return records, range(start, self._offset, record), self._offset

    def forget(self, position: int) -> None:
        """Drops the chunk."""
        self._chunk, self._offset, self._ended = b"", position, False

    def reopen(self) -> FixedLengthReader:
        """Returns another reader of the file."""
        return FixedLengthReader(Stream(self.path, self._stream.compression), *self._lengths)

    def _check_size(self, size: int) -> None:
        record, header, footer = self._lengths
        body = size - header - footer
        if body < 0 or body % record:
            raise InputError(
                f"{self.path} has {size} bytes, which is not {header} of a header, {footer} of a footer and a whole "
                f"number of records of {record} bytes. Give the lengths that it was written with, or write it again."
            )
