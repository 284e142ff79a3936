r"""The text of the file `checkpoint`: protocol buffers' text format, as TensorFlow writes and reads it.

    model_checkpoint_path: "model.ckpt-120"
    all_model_checkpoint_paths: "model.ckpt-100"
    all_model_checkpoint_paths: "model.ckpt-120"
    all_model_checkpoint_timestamps: 1760000000.25
    all_model_checkpoint_timestamps: 1760000600.5
    last_preserved_timestamp: 1760000000.0

Text is bytes there, of which those that are not printable ASCII are written as escapes, such as `\303`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_FIELD = re.compile(rf"(\w+)\s*:\s*((?:{_QUOTED}\s*)+|[-+.\w]+)\s*[,;]?")
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|.)")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def line(name: str, value: str | float) -> str:
    """Returns one field, with the end of its line."""
    return f'{name}: "{_escaped(value)}"\n' if isinstance(value, str) else f"{name}: {float(value)!r}\n"


def fields(text: bytes) -> Iterator[tuple[str, str | float]]:
    """Yields the fields of a text in order: its name, and text or a number.

    Raises:
        ValueError: If the text is no such format.
    """
    source = text.decode("latin-1")
    position = _after_blank(source, 0)
    while position < len(source):
        found = _FIELD.match(source, position)
        if found is None:
            raise ValueError(f"line {source.count(chr(10), 0, position) + 1} is not 'name: \"text\"' or 'name: number'")
        yield found[1], _value(found[2])
        position = _after_blank(source, found.end())


def _after_blank(source: str, position: int) -> int:
    found = _BLANK.match(source, position)
    return found.end() if found else position


def _value(text: str) -> str | float:
    if text[0] not in "\"'":
        return float(text)
    parts = [_ESCAPE.sub(_unescape, part[1:-1]) for part in re.findall(_QUOTED, text)]
    return os.fsdecode("".join(parts).encode("latin-1"))


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)


def _escaped(text: str) -> str:
    return "".join(_escape(byte) for byte in os.fsencode(text))


def _escape(byte: int) -> str:
    if byte in b"\"'\\":
        return f"\\{byte:c}"
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
