"""The example of a coordinator, as threads of one process and as a job."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import ROOT, environment

pytestmark = pytest.mark.cluster

PROGRAM = str(ROOT / "examples" / "cluster_coordinator.py")
RUN = ["-m", "lockstep._launch", "run", "--chief", "--workers", "2", "--ps", "2"]


@pytest.mark.parametrize("command", [[], RUN])
def test_it_learns_and_counts_each_update(command: list[str], tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, *command, PROGRAM, "--epochs", "3"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    accuracies = [float(a) for a in re.findall(r"accuracy (\S+)", result.stdout)]
    assert len(accuracies) == 3 and accuracies[-1] > max(0.8, accuracies[0]), result.stdout
    assert "Updates: 300" in result.stdout
