"""CONTRIBUTING.md lists the tests that are marked slow: one that comes or goes is a decision."""

from __future__ import annotations

import ast
import re

from tests.support.cluster import ROOT


def _marked() -> set[tuple[str, str]]:
    return {
        (path.name, node.name)
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.slow" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each).startswith("pytest.mark.slow") for each in node.decorator_list)
    }


def _listed() -> list[tuple[str, str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    lines = re.findall(r"^\* `(test_\w+\.py)`: (.*?)(?=\n\S|\n\n)", text, flags=re.M | re.S)
    return [(file, name) for file, names in lines for name in re.findall(r"`(test_\w+)`", names)]


def test_slow_tests_are_listed() -> None:
    listed = _listed()
    assert len(listed) == len(set(listed))
    assert set(listed) == _marked()
