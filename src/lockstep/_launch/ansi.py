"""Colours and other escape sequences in the text of tasks."""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate

_RESET = "\x1b[0m"
_COLOUR = r"\x1b\[[0-9;:]*m"
_OTHER = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
_CONTROL = re.compile(f"({_COLOUR})|{_OTHER}")
_SPLIT = re.compile(f"({_COLOUR})")


def paint(text: str, colour: int) -> str:
    """Return `text` in the colour of that SGR number."""
    return f"\x1b[{colour}m{text}{_RESET}"


def plain(text: str) -> str:
    """Return `text` without escape sequences and control characters; tabs stay."""
    return _CONTROL.sub("", text)


def coloured(text: str) -> str:
    """Return `text` with its colours, but without sequences that move the cursor or change the terminal."""
    kept = _CONTROL.sub(_colour_of, text)
    return kept + _RESET if "\x1b" in kept else kept


def clip(text: str, width: int) -> str:
    """Return the beginning of `text` that fits in `width` cells of a terminal, with all its colours."""
    shown: list[str] = []
    for piece in _SPLIT.split(text.expandtabs()):
        kept = piece if piece.startswith("\x1b") else _fitting(piece, width)
        width -= 0 if piece.startswith("\x1b") else _cells(kept)
        shown.append(kept)
    return "".join(shown)


def _colour_of(match: re.Match[str]) -> str:
    return match[1] or ""


def _fitting(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    ends = accumulate(map(_cell, text))
    return text[: sum(end <= width for end in ends)]


def _cells(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
