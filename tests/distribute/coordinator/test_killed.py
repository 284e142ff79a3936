"""Tasks of a coordinator's cluster are killed or stopped: each effect of a function is there once."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.distribute.coordinator.counting import BATCH, STEPS
from tests.distribute.coordinator.tasks import Tasks
from tests.engine.runtime.jobs import eventually

pytestmark = pytest.mark.cluster
_MODULE = "tests.distribute.coordinator.counting"


def _held(tasks: Tasks, folder: Path) -> None:
    eventually((folder / "held").exists, lambda: f"the chief is held: {tasks.log('chief 0')[-3000:]}", 120.0)


def _found(tasks: Tasks, folder: Path) -> dict[str, Any]:
    codes = tasks.wait()
    assert set(codes.values()) == {0}, (codes, {name: tasks.log(name)[-2000:] for name in codes})
    return json.loads((folder / "found.json").read_text())


def _check_once(found: dict[str, Any]) -> None:
    assert found["counters"] == [[STEPS] * 3] * 4
    assert found["iterations"] == STEPS
    assert found["seen"] == sum(found["sums"])
    # A batch of successive numbers is known by its sum.
    batches = [(total - sum(range(BATCH))) // BATCH**2 for total in found["sums"]]
    assert found["rows"] == [float(batches.count(n // BATCH)) for n in range(STEPS * BATCH)]


@pytest.mark.parametrize("program", [pytest.param("server", marks=pytest.mark.exhaustive), "same program"])
def test_all_effects_are_there_once_and_all_tasks_end(tmp_path: Path, program: str) -> None:
    tasks = Tasks(_MODULE, 2, 2, tmp_path, [str(STEPS), program])
    found = _found(tasks, tmp_path)
    _check_once(found)
    # Each worker goes through its own pass over the data, in order.
    per_batch = [sum(range(n * BATCH, (n + 1) * BATCH)) for n in range(STEPS)]
    assert set(found["sums"]) <= set(per_batch)


def test_a_worker_is_killed_and_starts_again(tmp_path: Path) -> None:
    tasks = Tasks(_MODULE, 2, 2, tmp_path, ["40"])
    _held(tasks, tmp_path)
    tasks.kill("worker 1")
    tasks.start("worker 1")
    _check_once(_found(tasks, tmp_path))


def test_a_worker_is_killed_for_good(tmp_path: Path) -> None:
    tasks = Tasks(_MODULE, 2, 2, tmp_path, ["40"], LOCKSTEP_SILENCE_TIMEOUT="5")
    _held(tasks, tmp_path)
    tasks.kill("worker 0")
    codes = tasks.wait(["chief 0", "worker 1", "ps 0", "ps 1"])
    assert set(codes.values()) == {0}, tasks.log("chief 0")[-3000:]
    _check_once(json.loads((tmp_path / "found.json").read_text()))
    assert "worker 0 has gone" in tasks.log("chief 0")


def test_a_worker_is_stopped_and_wakes_up_late(tmp_path: Path) -> None:
    tasks = Tasks(_MODULE, 2, 2, tmp_path, ["40"], LOCKSTEP_SILENCE_TIMEOUT="3")
    _held(tasks, tmp_path)
    tasks.kill("worker 1", signal.SIGSTOP)
    eventually(lambda: "worker 1 has gone" in tasks.log("chief 0"), lambda: tasks.log("chief 0")[-3000:], 60.0)
    tasks.kill("worker 1", signal.SIGCONT)
    _check_once(_found(tasks, tmp_path))


def test_a_server_that_is_killed_is_named(tmp_path: Path) -> None:
    tasks = Tasks(_MODULE, 2, 2, tmp_path, ["40"], LOCKSTEP_SILENCE_TIMEOUT="5")
    _held(tasks, tmp_path)
    tasks.kill("ps 1")
    tasks.start("ps 1")
    codes = tasks.wait(["chief 0"])
    assert codes["chief 0"] != 0
    assert "ps 1 was started again, and has lost the variables" in tasks.log("chief 0")
