"""Row 20: clocks that are wrong, or jump."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import numpy as np
import pytest

from lockstep import checkpoint
from lockstep.checkpoint import CheckpointStore
from tests.engine.runtime.test_rendezvous import arrival, assert_all_join

SOURCE = Path(__file__).resolve().parents[2] / "src" / "lockstep"
# What may ask for the time of day: to compare with the times of files, to tell people or other processes when something
# was, and where that is what is asked for.
TIME_OF_DAY = {
    "_doctor/cluster.py",
    "_doctor/machine.py",
    "_launch/child.py",
    "_launch/recovery.py",
    "_engine/runtime/unix_sockets.py",
    "_engine/runtime/failure.py",
    "_engine/runtime/launcher_files.py",
    "_engine/runtime/progress.py",
    "_engine/runtime/recorder.py",
    "checkpoint/_atomic.py",
    "checkpoint/_directory.py",
    "checkpoint/_store.py",
    "checkpoint/_archive.py",
    "compat/tensorflow/_ops/control.py",
    "estimator/summary/_file_writer.py",
    "report/_compare.py",
    "report/_page.py",
    "report/_watch.py",
    "saved_model/_directories.py",
    "summary/_event_file.py",
    "summary/_hparams.py",
    "training/callbacks/_mlflow.py",
}


@pytest.fixture(params=[-3600.0, 3600.0, 1e9])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """The time of day jumps with each look at it; the monotonic clock does not."""
    now, jumps = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: now() + request.param * (next(jumps) % 2))
    return request.param


def test_20_arrival_does_not_look_at_the_time_of_day(wrong_clock: float) -> None:
    with arrival(3) as here:
        assert_all_join(here, here.report(1), here.report(2))


def test_20_the_newest_checkpoint_is_that_of_the_highest_step(wrong_clock: float, tmp_path: Path) -> None:
    """Whatever the times of the files are."""
    import os

    store = CheckpointStore(str(tmp_path), "model", 10)
    for step in (1, 2, 10):
        store.save(step, {"w": np.full(3, step)}, {})
        store.wait()
    store.close()
    for path in tmp_path.iterdir():
        if "-10" in path.name:
            os.utime(path, (1.0, 1.0))
    found = checkpoint.load_newest(str(tmp_path))
    assert found is not None and found.arrays["w"][0] == 10


@pytest.mark.slow
def test_20_waits_are_measured_by_the_monotonic_clock() -> None:
    """No module that waits for others asks for the time of day."""
    asks = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("time", "time"), ("datetime", "now")}
    }
    assert asks <= TIME_OF_DAY
