"""The example of an Estimator, in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets.digits import write_idx
from tests.support.cluster import ROOT, environment

pytestmark = pytest.mark.cluster


def test_it_trains_exports_and_serves(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    command = [sys.executable, str(ROOT / "examples" / "estimator.py"), "--max-steps", "5"]
    settings = environment(LOCKSTEP_DATA_DIR=str(tmp_path), KERAS_HOME=str(tmp_path / "keras"))
    for expected in ("after 5 steps\nExported: runs/estimator/export/final/", "holds a model of 5 steps already"):
        done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
