"""A short schedule of faults; `make chaos` runs long ones."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.chaos import harness, verdict
from tests.chaos.schedule import STEPS, Fault, schedule

pytestmark = pytest.mark.alone

WORKERS = 2

SCHEDULES = {
    "the chief is killed at once, then not a number": [
        Fault("SIGKILL", "worker 0", 3, 0.0),
        Fault("NaN", "worker 1", 80, 0.0),
    ],
    "a damaged checkpoint, preempted, a full disk": [
        Fault("truncated file", "worker 1", 35, 0.0),
        Fault("SIGTERM", "worker 1", 60, 0.0),
        Fault("full disk", "worker 0", 88, 0.0),
    ],
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Generator[harness.Job]:
    job = harness.run(tmp_path_factory.mktemp("chaos") / "undisturbed", [], WORKERS, has_evaluator=True)
    assert job.code == 0, job.output
    yield job


@pytest.mark.parametrize("name", SCHEDULES)
def test_ends_where_the_undisturbed_run_does(name: str, undisturbed: harness.Job, tmp_path: Path) -> None:
    job = harness.run(tmp_path / "job", SCHEDULES[name], WORKERS, has_evaluator=True)
    assert not verdict.problems(job, undisturbed, WORKERS, has_evaluator=True), job.output
    assert verdict.happened(job) == list(range(len(SCHEDULES[name])))


def test_the_verdict_sees_a_difference(undisturbed: harness.Job, tmp_path: Path) -> None:
    other = harness.Job(tmp_path, 0, 0.0, "")
    copied = tmp_path / "model"
    copied.mkdir()
    older = undisturbed.directory / "model" / f"model.ckpt-{STEPS - 10}.npz"
    (copied / older.name).write_bytes(older.read_bytes())
    (tmp_path / "tmp").mkdir()
    for worker in range(WORKERS):
        lines = (undisturbed.directory / f"seen worker {worker}").read_text().splitlines()
        (tmp_path / f"seen worker {worker}").write_text("\n".join([*lines[:-9], "118 0.0 1 2 3 4"]))
        (tmp_path / f"pids worker {worker}").write_text("1\n")
    (copied / "something.unfinished").touch()
    found = verdict.problems(other, undisturbed, WORKERS, has_evaluator=False)
    assert "dense/kernel differs" in found
    assert "left over: something.unfinished" in found
    assert "worker 0 has seen other examples in step 118" in found


def test_a_seed_names_one_schedule() -> None:
    drawn = [schedule(seed, 3, has_evaluator=True) for seed in range(50)]
    assert drawn == [schedule(seed, 3, has_evaluator=True) for seed in range(50)]
    assert len({str(faults) for faults in drawn}) == 50
    kinds = {fault.kind for faults in drawn for fault in faults}
    assert kinds >= {"SIGKILL", "SIGTERM", "SIGSTOP", "full disk", "EIO", "truncated file", "NaN", "raising input"}
    assert all(0 <= fault.step < STEPS for faults in drawn for fault in faults)
