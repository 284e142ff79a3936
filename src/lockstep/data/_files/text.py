"""Text files, line by line.

Source: tf.data.TextLineDataset. As there, a line ends at a newline, carriage returns are dropped wherever they stand,
empty lines are elements, and a last line needs no newline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from lockstep import _decoded_size
from lockstep.data._files.block_reader import BlockReader
from lockstep.data._files.stream import Stream, as_path

_CHUNK = 1 << 18


def open_text(path: object, compression_type: str | None = "") -> TextReader:
    """Opens a text file.

    Args:
        path: The file.
        compression_type: "" (or `None`), "GZIP" or "ZLIB".

    Raises:
        DataNotFoundError: If there is no such file.
    """
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
                return self._lines(chunk)
            self._rest.append(chunk)
            self._length += len(chunk)
            # A few bytes can stand for a line of gigabytes; of a plain file the line is on the disk.
            if self._stream.compression:
                what = f"{self.path}: line {self.number}, at byte {self._offset}, which has not ended by then"
                _decoded_size.check(self._length, what)
        return self._last()

    def forget(self, position: int) -> None:
        """Drops the line that has been begun."""
        self._rest, self._length, self._offset = [], 0, position

    def reopen(self) -> TextReader:
        """Returns another reader of the file."""
        return open_text(self.path, self._stream.compression)

    def _lines(self, chunk: bytes) -> tuple[Sequence[bytes], Sequence[int], int]:
        text = b"".join((*self._rest, chunk))
        lines = text.split(b"\n")
        # After the last newline: the begun line, maybe empty.
        rest = lines.pop()
        starts = [start + index for index, start in enumerate(starts_of(lines, self._offset))]
        self._rest, self._length, self._offset = [rest], len(rest), starts.pop()
        if b"\r" in text:
            lines = [line.replace(b"\r", b"") for line in lines]
        return lines, starts, self._offset

    def _last(self) -> tuple[Sequence[bytes], Sequence[int], int]:
        """Returns the line that the file ends with, if it has no newline."""
        text, start = b"".join(self._rest), self._offset
        self.forget(start + len(text))
        line = text.replace(b"\r", b"")
        return ([line], [start], self._offset) if line else ((), (), self._offset)
