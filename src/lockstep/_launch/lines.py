"""A stream of bytes as the lines that a terminal would show."""

from __future__ import annotations

import codecs

_LONGEST = 1 << 16
_MOVES = "\r\b"


class LineBuffer:
    """Collects bytes into lines, and knows the line that is not finished yet.

    A line that is rewritten after a carriage return counts in its last state. Bytes that are not UTF-8 are replaced.
    A line longer than 65,536 characters comes in pieces, so that memory stays bounded.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes and return the lines that they complete."""
        return self._split(self._decode(data))

    def close(self) -> list[str]:
        """Return the line that the stream ended in, if any."""
        lines = self._split(self._decode(b"", True))
        last, self._rest = self.unfinished, ""
        return [*lines, last] if last else lines

    @property
    def unfinished(self) -> str:
        """The last state of the line that no newline has ended yet."""
        return _last_state(self._rest)

    def _split(self, text: str) -> list[str]:
        *lines, rest = (self._rest + text).split("\n")
        self._rest = _without_overwritten(rest)
        if len(self._rest) > _LONGEST:
            lines.append(self._rest)
            self._rest = ""
        return [_last_state(line) for line in lines]


def _without_overwritten(line: str) -> str:
    """Drop what a carriage return has overwritten; moving the cursor overwrites nothing until text follows."""
    text = line.rstrip(_MOVES)
    move = line[len(text) :]
    return text[text.rfind("\r") + 1 :] + ("\r" if "\r" in move else move)


def _last_state(line: str) -> str:
    text = _without_overwritten(line).rstrip(_MOVES)
    return _backspaced(text) if "\b" in text else text


def _backspaced(text: str) -> str:
    shown: list[str] = []
    for character in text:
        if character != "\b":
            shown.append(character)
        elif shown:
            shown.pop()
    return "".join(shown)
