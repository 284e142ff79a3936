"""Rows 53 to 55: tasks of a job with parameter servers are killed; each batch counts once, and no bit differs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.engine.runtime.jobs import eventually

pytestmark = pytest.mark.cluster
_SECONDS = 300.0


def _start(out: Path, mode: str, batches: int, holds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Starts a job; its chief stops after each of these numbers of batches until `_kill` has killed a task."""
    out.mkdir()
    options = {"out": str(out), "mode": mode, "replicas": 3 if mode == "sync" else 1, "batches": batches}
    options |= {"every": 20, "holds": list(holds), "delay": 0.003}
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", "2", "--ps", "2", "--max-restarts", "50"]
    program = ["--restart-delay", "0", "-m", "tests.engine.servers.task", json.dumps(options)]
    with (out / "log").open("wb") as log:
        return subprocess.Popen([*command, *program], stdout=log, stderr=subprocess.STDOUT)


def _finish(job: subprocess.Popen[bytes], out: Path) -> dict[str, np.ndarray]:
    assert job.wait(_SECONDS) == 0, (out / "log").read_text()[-4000:]
    with np.load(out / "values.npz") as values:
        return dict(values)


def _kill(out: Path, task: str, at: int) -> None:
    """Kills a task once the chief has seen so many batches; the chief goes on once the task is started again."""
    tickets, pid = out / "tickets", out / f"{task}.pid"
    eventually(
        lambda: pid.exists() and tickets.exists() and len(tickets.read_text().splitlines()) >= at,
        lambda: f"{task} is there at batch {at}: {_log(out)[-4000:]}",
        _SECONDS,
    )
    again = f"Starting {task.replace('-', ' ')} again, by itself"
    before, victim = _log(out).count(again), int(pid.read_text())
    pid.unlink()
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: _log(out).count(again) > before, lambda: f"{again}: {_log(out)[-4000:]}", _SECONDS)
    (out / f"go-on-{at}").touch()


def _log(out: Path) -> str:
    return (out / "log").read_text()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Returns the values of a synchronous job in which nothing happens."""
    out = tmp_path_factory.mktemp("undisturbed") / "calm"
    return _finish(_start(out, "sync", 60), out)


@pytest.mark.parametrize("task", ["worker-1", "ps-1", "worker-0"])
def test_53_synchronous_training_ends_with_the_same_bits(
    undisturbed: dict[str, np.ndarray], tmp_path: Path, task: str
) -> None:
    struck = _start(tmp_path / "struck", "sync", 60, [45])
    _kill(tmp_path / "struck", task, 45)
    values = _finish(struck, tmp_path / "struck")
    for name, value in undisturbed.items():
        np.testing.assert_array_equal(value, values[name])


def test_53_asynchronous_training_counts_each_batch_once(tmp_path: Path) -> None:
    victims = {40: "worker-1", 80: "ps-0", 120: "worker-1", 160: "ps-1"}
    job = _start(tmp_path / "job", "async", 100, list(victims))
    for at, task in victims.items():
        _kill(tmp_path / "job", task, at)
    assert round(float(_finish(job, tmp_path / "job")["counter"])) == 200
