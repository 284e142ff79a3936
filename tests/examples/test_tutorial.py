"""The programs of the tutorial print what its pages say, on one device, on two workers, and after a kill."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import ROOT, environment

pytestmark = pytest.mark.cluster

PROGRAMS = ROOT / "examples" / "tutorial"
PAGES = ROOT / "docs" / "tutorial"


def _launched(program: str, directory: Path, *options: str) -> str:
    command = [sys.executable, "-m", "lockstep._launch", "run", *options, str(PROGRAMS / program)]
    done = subprocess.run(command, cwd=directory, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _loss(output: str) -> str:
    return re.findall(r"loss (\d\.\d+)", output)[-1]


def test_two_workers_print_the_loss_of_one_device_and_of_the_page(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "alone.py")]
    alone = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240)
    together = _launched("together.py", tmp_path, "--workers", "2")
    assert _loss(alone.stdout) == _loss(together) == _loss((PAGES / "own_program.md").read_text())


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    output = _launched("recovery.py", tmp_path, "--workers", "2", "--max-restarts", "2")
    assert "worker 1 failed: killed by signal 9" in output
    assert "restart 1 of 2" in output
    assert _loss(output) == _loss((PAGES / "recovery.md").read_text())


def test_a_loop_of_its_own_trains_alike_on_one_worker_and_on_two(tmp_path: Path) -> None:
    one, two = (_launched("own_loop.py", tmp_path, "--workers", n) for n in "12")
    assert _loss(one) == _loss(two)


def test_pages_show_programs_that_are_run() -> None:
    shown = {name for page in PAGES.glob("*.md") for name in re.findall(r'--8<-- "([^":]+)', page.read_text())}
    tested = {f"examples/tutorial/{p}.py" for p in ("alone", "together", "recovery", "own_loop")}
    assert shown == tested | {"examples/estimator.py"}
    # What is no program on these pages is no Python either, but for the lines that follow from one.
    for page in PAGES.glob("*.md"):
        for block in re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), re.DOTALL):
            assert block.startswith("--8<--"), f"{page.name}: {block}"
