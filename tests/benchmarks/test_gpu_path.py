"""The path of `make bench-gpu`, with tiny sizes, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.environments import ROOT

pytestmark = pytest.mark.cluster


@pytest.mark.exhaustive
def test_a_network_is_measured_beside_what_is_there(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--smoke", "--cases", "LSTM", "--rounds", "1"]
    own = ["--output", str(tmp_path), "--lockstep", sys.executable, "--torch", str(tmp_path / "python")]
    done = subprocess.run([*command, *own], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "smoke.json").read_text())
    (case,) = result["cases"]
    rates = {s["name"]: [r["examples/s"] for r in s["rounds"]] for s in case["sides"]}
    assert rates["lockstep"][0] > 0
    assert rates["bare jax loop"][0] > 0
    assert rates["PyTorch"] == []
    assert result["device"] == "cpu"
    assert "PyTorch was not measured" in (tmp_path / "smoke.md").read_text()


def test_without_a_gpu_nothing_is_claimed(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--output", str(tmp_path)]
    own = ["--cases", "none", "--lockstep", sys.executable]
    done = subprocess.run([*command, *own], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and "There is no GPU" in done.stderr
    assert not list(tmp_path.iterdir())
