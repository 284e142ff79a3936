"""The example of parameter servers, in one process and as a job."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import ROOT, environment

pytestmark = pytest.mark.cluster

PROGRAM = str(ROOT / "examples" / "parameter_servers.py")
SMALL = ["--items", "40000", "--examples", "1280", "--epochs", "2", "--sync"]


def _losses(command: list[str], directory: Path) -> list[float]:
    result = subprocess.run(
        [sys.executable, *command], cwd=directory, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(r"Loss: (\S+) in the first epoch, (\S+) in the last", result.stdout)
    assert found is not None, result.stdout
    return [float(value) for value in found.groups()]


def test_a_job_comes_to_the_losses_of_one_process(tmp_path: Path) -> None:
    alone = _losses([PROGRAM, *SMALL], tmp_path)
    assert alone[1] < alone[0]
    job = _losses(["-m", "lockstep._launch", "run", "--workers", "2", "--ps", "2", PROGRAM, *SMALL], tmp_path)
    assert job == alone
