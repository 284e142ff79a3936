"""Scans of programs: which of TensorFlow's names they use, which of them lockstep has, and their new import lines."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lockstep._migrate._coverage import Answer, answer, names_of
from lockstep._migrate._imports import rewrite
from lockstep._migrate._sources import Cell, Program, find_programs, read_program
from lockstep._migrate._uses import Scope, find_uses
from lockstep.errors import InputError


@dataclass
class FileScan:
    """Scan of one file.

    Attributes:
        path: The file.
        places: Where each name is used, for people; in the order of first use.
        diff: The change of its import lines, as a unified diff; empty without one.
        error: Why it could not be read, or is no Python; else `None`.
        content: What the file would hold with new import lines; `None` without a change.
    """

    path: Path
    places: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    diff: str = ""
    error: str | None = None
    content: bytes | None = None

    def answers(self) -> dict[str, Answer]:
        """Returns what lockstep has for each name."""
        return {name: answer(name) for name in self.places}

    def names(self, status: str) -> list[str]:
        """Returns the names of one status."""
        return [name for name, found in self.answers().items() if found.status == status]


def scan_path(path: Path) -> Iterator[FileScan]:
    """Yields the scan of each program that uses TensorFlow, and of each file that cannot be read.

    Raises:
        ArgumentError: If there is no such file or directory.
    """
    for file in find_programs(path):
        scan = _scan_file(file)
        if scan.places or scan.error:
            yield scan


def _scan_file(path: Path) -> FileScan:
    scan = FileScan(path)
    try:
        program = read_program(path)
    except InputError as error:
        scan.error = str(error)
        return scan
    trees, scope = dict(_parse(path, program, scan)), Scope()
    texts: dict[int | None, str] = {}
    for cell in program.cells:
        if cell.number not in trees:
            continue
        for use in find_uses(trees[cell.number], scope, names_of):
            places = scan.places.setdefault(use.name, [])
            if (place := cell.place(use.line)) not in places:
                places.append(place)
        changed = rewrite(cell.code, cell.text)
        if changed != cell.text:
            texts[cell.number] = changed
            scan.diff += _diff(path, cell, changed)
    if texts:
        scan.content = program.with_texts(texts)
    return scan


def _parse(path: Path, program: Program, scan: FileScan) -> Iterator[tuple[int | None, ast.Module]]:
    """Yields the syntax tree of each cell, by number; notes the last one that is no Python."""
    for cell in program.cells:
        try:
            yield cell.number, ast.parse(cell.code)
        except (SyntaxError, ValueError) as error:
            place = cell.place(getattr(error, "lineno", None) or 1)
            scan.error = f"{path}, {place} is not Python 3: {getattr(error, 'msg', error)}"


def _diff(path: Path, cell: Cell, changed: str) -> str:
    label = str(path) if cell.number is None else f"{path} (cell {cell.number})"
    # Without lines around: what matters is how little changes.
    lines = difflib.unified_diff(
        cell.text.splitlines(keepends=True), changed.splitlines(keepends=True), label, label, n=0
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
