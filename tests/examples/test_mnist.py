"""The example of MNIST in one process, and which process it lets print and save."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.cluster_resolver import SimpleClusterResolver
from tests.datasets.digits import write_idx
from tests.support.cluster import ROOT, environment

PROGRAM = ROOT / "examples" / "mnist.py"
WORKERS = {"worker": ["a:1", "b:1"]}
WITH_CHIEF = {"chief": ["c:1"], **WORKERS}
is_chief = runpy.run_path(str(PROGRAM))["is_chief"]


@pytest.mark.parametrize(
    ("cluster", "task", "expected"),
    [
        ({}, (None, None), True),
        (WORKERS, ("worker", 0), True),
        (WORKERS, ("worker", 1), False),
        (WORKERS, ("evaluator", 0), False),
        (WITH_CHIEF, ("chief", 0), True),
        (WITH_CHIEF, ("worker", 0), False),
    ],
)
def test_one_process_prints_and_saves(cluster: Any, task: tuple[Any, Any], expected: bool) -> None:
    resolver = SimpleClusterResolver(cluster, task_type=task[0], task_id=task[1])
    assert is_chief(SimpleNamespace(cluster_resolver=resolver)) is expected
    assert is_chief(SimpleNamespace(cluster_resolver=None))


def test_one_process_trains_and_saves(tmp_path: Path) -> None:
    data = write_idx(tmp_path / "mnist")
    command = [sys.executable, str(PROGRAM), "--epochs", "1", "--output-dir", "out"]
    settings = environment(LOCKSTEP_DATA_DIR=str(tmp_path), KERAS_HOME=str(tmp_path / "keras"))
    result = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"Data: MNIST from {data}\nReplicas: 1, global batch: 64\n")
    assert "Test accuracy: " in result.stdout
    assert (tmp_path / "out" / "mnist.keras").exists()
