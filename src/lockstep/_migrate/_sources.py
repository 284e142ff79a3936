"""Programs to scan: Python files and notebooks, as Python code with the places that it came from."""

from __future__ import annotations

import io
import json
import os
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import ArgumentError, InputError

# Other people's code, and what is generated.
_SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})
_ENDINGS = (".py", ".ipynb")
# Lines of a notebook that are IPython's, not Python's: %magic, !shell, ?help; also `x = !ls` and `x = %time ...`.
_MAGIC = re.compile(r"\s*(?:[%!?]|\w[\w, ]*=\s*[%!])|.*[^#\s]\?\s*\Z")
# Magics of a whole cell that is Python all the same: timed, silenced, or written to a module beside the notebook.
_PYTHON_CELL = re.compile(r"\s*%%(?:time|timeit|capture|prun|writefile\s+\S+\.py)\b")


@dataclass(frozen=True)
class Cell:
    """Part of a program that is parsed by itself: a file, or a cell of a notebook.

    Attributes:
        code: Python code, with as many lines as there are in the file.
        text: What the file holds, which differs where IPython's own lines are.
        number: Of a notebook's cell, from 1; `None` of a file.
    """

    code: str
    text: str
    number: int | None = None

    def place(self, line: int) -> str:
        """Returns where a line is, for people."""
        return str(line) if self.number is None else f"cell {self.number}, line {line}"


@dataclass(frozen=True)
class Program:
    """A file with its cells, which share their names.

    Attributes:
        path: The file.
        cells: One, or those of a notebook that hold Python.
        encoding: Of the file.
        notebook: Of a notebook: its JSON.
    """

    path: Path
    cells: tuple[Cell, ...]
    encoding: str = "utf-8"
    notebook: Any = None

    def with_texts(self, texts: dict[int | None, str]) -> bytes:
        """Returns the bytes of the file with other texts of some cells, by number."""
        if self.notebook is None:
            return texts[None].encode(self.encoding)
        # A copy: the notebook that was read is asked again for other cells.
        document = json.loads(json.dumps(self.notebook))
        for number, text in texts.items():
            assert number is not None
            cell = document["cells"][number - 1]
            # Notebooks hold a list of lines, or one text; each stays what it was.
            cell["source"] = text.splitlines(keepends=True) if isinstance(cell["source"], list) else text
        raw = self.path.read_text(self.encoding)
        # As it was written: Jupyter indents by 1, others by 2, some not at all; some escape all but ASCII.
        indent = re.match(r"\{\n( +)", raw)
        dumped = json.dumps(document, indent=len(indent[1]) if indent else None, ensure_ascii="\\u" in raw)
        return (dumped + ("\n" if raw.endswith("\n") else "")).encode(self.encoding)


def find_programs(path: Path) -> Iterator[Path]:
    """Yields a file, or all Python files and notebooks below a directory, sorted.

    Raises:
        ArgumentError: If there is no such file.
    """
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise ArgumentError(f"scan takes a file or a directory. Received: {str(path)!r}, which is not there.")
    for directory, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(files):
            if name.endswith(_ENDINGS):
                yield Path(directory) / name


def read_program(path: Path) -> Program:
    """Reads a file or a notebook.

    Raises:
        InputError: If it cannot be read, or is no text of its kind.
    """
    try:
        return _read_notebook(path) if path.suffix == ".ipynb" else _read_file(path)
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _read_file(path: Path) -> Program:
    # Bytes: line ends stay what they are, and a first line may say another encoding (PEP 263).
    content = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    text = content.decode(encoding)
    return Program(path, (Cell(text, text),), encoding)


def _read_notebook(path: Path) -> Program:
    document = json.loads(path.read_text("utf-8"))
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise ValueError("it is no notebook of format 4; open it in Jupyter and save it")
    cells: list[Cell] = []
    for number, cell in enumerate(document["cells"], start=1):
        source = cell.get("source", "")
        text = source if isinstance(source, str) else "".join(source)
        # %%bash and the like: the whole cell is of another language.
        is_python = not text.lstrip().startswith("%%") or _PYTHON_CELL.match(text) is not None
        if cell.get("cell_type") == "code" and is_python:
            cells.append(Cell(_python_of(text), text, number))
    return Program(path, tuple(cells), notebook=document)


def _python_of(text: str) -> str:
    """Returns a cell's code with IPython's lines emptied, so that lines keep their numbers."""
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if _MAGIC.match(line.rstrip("\n")):
            # `pass`, as the line may be the only one of a block.
            indent = line[: len(line) - len(line.lstrip())]
            lines[index] = f"{indent}pass\n" if line.endswith("\n") else f"{indent}pass"
    return "".join(lines)
