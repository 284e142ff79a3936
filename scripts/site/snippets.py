"""Examples of the reference: cells of the files in examples/reference, found by the public names that they use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_CELL = re.compile(r"^# %%.*\n", re.MULTILINE)
_SHORT = {"lockstep.callbacks": "lockstep.training.callbacks", "lockstep.random": "lockstep.training.random"}


def cells(file: Path) -> list[str]:
    """Returns the cells of a file that `# %%` begins; what stands above the first one is set-up, and is left out."""
    return [cell.strip() + "\n" for cell in _CELL.split(file.read_text(encoding="utf-8"))[1:]]


def names_in(code: str) -> set[str]:
    """Returns the full names of what a cell takes from lockstep, where `ls` is lockstep."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if head == "ls":
                name = f"lockstep.{rest}"
                names.add(name)
                short = next((s for s in _SHORT if name.startswith(f"{s}.")), None)
                if short:
                    names.add(_SHORT[short] + name.removeprefix(short))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lockstep"):
            names |= {f"{node.module}.{a.name}" for a in node.names}
    return names


def by_name() -> dict[str, str]:
    """Returns the shortest cell that uses each name."""
    found: dict[str, str] = {}
    for file in sorted((ROOT / "examples" / "reference").glob("*.py")):
        for cell in cells(file):
            for name in names_in(cell):
                if name not in found or len(cell) < len(found[name]):
                    found[name] = cell
    return found
