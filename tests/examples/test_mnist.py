"""The example of MNIST in one process, and which process it lets print and save."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets.digits import write_idx
from tests.support.cluster import ROOT, environment

pytestmark = pytest.mark.cluster

PROGRAM = ROOT / "examples" / "mnist.py"


def test_one_process_trains_and_saves(tmp_path: Path) -> None:
    data = write_idx(tmp_path / "mnist")
    command = [sys.executable, str(PROGRAM), "--epochs", "1", "--output-dir", "out"]
    settings = environment(LOCKSTEP_DATA_DIR=str(tmp_path), KERAS_HOME=str(tmp_path / "keras"))
    result = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"Data: MNIST from {data}\nReplicas: 1, global batch: 64\n")
    assert "Test accuracy: " in result.stdout
    assert (tmp_path / "out" / "mnist.keras").exists()
