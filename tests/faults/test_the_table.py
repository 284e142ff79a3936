"""docs/faults.md: every row of it, and every test that it names, is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| (\d+) \|(.*)$", (ROOT / "docs" / "faults.md").read_text(), re.MULTILINE)
NAMED = sorted({name for _, row in ROWS for name in re.findall(r"`(tests/\S+::\w+)`", row)})


def test_there_is_a_row_for_each_case_and_a_test_for_each_row() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert all("::test_" in row for _, row in ROWS)


@pytest.mark.parametrize("name", NAMED)
def test_what_the_table_names_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_here_that_has_a_number_is_in_a_row_of_that_number() -> None:
    rows = dict(ROWS)
    for path in sorted(Path(__file__).parent.glob("test_[0-9]*.py")):
        number = path.name.split("_")[1]
        assert f"tests/faults/{path.name}::" in rows[str(int(number))], path.name
