"""Text of templates: quoting for YAML and shells, and blocks at an indentation."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Sequence


def quote(text: str) -> str:
    """Returns a string as YAML, in double quotes: JSON's strings are YAML's."""
    return json.dumps(text)


def list_strings(words: Sequence[str]) -> str:
    """Returns a list of strings as YAML, on one line."""
    # On one line, as commands and modes are read; YAML takes JSON as it is (YAML 1.2, chapter 1.3).
    return json.dumps(list(words))


def literal(text: str) -> str:
    """Returns a string for YAML in single quotes, in which JSON stays readable."""
    return "'" + text.replace("'", "''") + "'"


def shell(words: Sequence[str]) -> str:
    """Returns a command for a POSIX shell."""
    return shlex.join(words)


def indent(text: str, columns: int) -> str:
    """Returns the lines of `text` moved to the right, without the first indentation and the last line's end."""
    # The first line stands where the placeholder stood, which has its indentation already.
    return textwrap.indent(text.strip("\n"), " " * columns).lstrip(" ")


def dedent(text: str) -> str:
    """Returns the text without the indentation that all its lines have, and with one line's end."""
    return textwrap.dedent(text).strip("\n") + "\n"
