"""The source's figures that have a limit: no import cycles, and no package that reaches into another one's insides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "measure_style"


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return json.loads(subprocess.check_output([sys.executable, str(SCRIPT), "--json"], text=True))


def test_files_do_not_import_each_other_in_circles(figures: dict[str, Any]) -> None:
    assert figures["cycles"] == []


def test_public_packages_keep_out_of_each_others_private_modules(figures: dict[str, Any]) -> None:
    assert figures["private imports"] == [], "what a sibling needs goes through the package's `internal` module"
