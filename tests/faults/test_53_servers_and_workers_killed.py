"""Rows 53 to 55: tasks of a job with parameter servers are killed; each batch counts once, and no bit differs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.cluster
_SECONDS = 300.0


def _start(out: Path, mode: str, batches: int) -> subprocess.Popen[bytes]:
    out.mkdir()
    options = {"out": str(out), "mode": mode, "replicas": 3 if mode == "sync" else 1, "batches": batches, "every": 20}
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", "2", "--ps", "2", "--max-restarts", "50"]
    program = ["--restart-delay", "0", "-m", "tests.engine.servers.task", json.dumps({**options, "delay": 0.003})]
    with (out / "log").open("wb") as log:
        return subprocess.Popen([*command, *program], stdout=log, stderr=subprocess.STDOUT)


def _finish(job: subprocess.Popen[bytes], out: Path) -> dict[str, np.ndarray]:
    assert job.wait(_SECONDS) == 0, (out / "log").read_text()[-4000:]
    with np.load(out / "values.npz") as values:
        return dict(values)


def _kill(out: Path, task: str, at: int) -> None:
    """Kills a task once the chief has seen so many batches."""
    end = time.monotonic() + _SECONDS
    tickets, pid = out / "tickets", out / f"{task}.pid"
    while time.monotonic() < end:
        lines = tickets.read_text().splitlines() if tickets.exists() else []
        if len(lines) >= at and pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)
            pid.unlink()
            return
        time.sleep(0.005)
    raise AssertionError(f"{task} was not there at batch {at}")


@pytest.mark.parametrize("task", ["worker-1", "ps-1", "worker-0"])
def test_53_synchronous_training_ends_with_the_same_bits(tmp_path: Path, task: str) -> None:
    calm = _start(tmp_path / "calm", "sync", 60)
    expected = _finish(calm, tmp_path / "calm")
    struck = _start(tmp_path / "struck", "sync", 60)
    _kill(tmp_path / "struck", task, 45)
    values = _finish(struck, tmp_path / "struck")
    assert f"Starting {task.replace('-', ' ')} again, by itself" in (tmp_path / "struck" / "log").read_text()
    for name, value in expected.items():
        np.testing.assert_array_equal(value, values[name])


def test_53_asynchronous_training_counts_each_batch_once(tmp_path: Path) -> None:
    job = _start(tmp_path / "job", "async", 100)
    for number, task in enumerate(["worker-1", "ps-0", "worker-1", "ps-1"], 1):
        _kill(tmp_path / "job", task, 40 * number)
    assert round(float(_finish(job, tmp_path / "job")["counter"])) == 200
