"""Chief, worker and evaluator as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lockstep import checkpoint, summary
from tests.support.cluster import environment, free_ports
from tests.support.exhaustive import always

pytestmark = pytest.mark.cluster

SECONDS = 200.0
ROLES = ("chief", "worker", "evaluator")


class Job:
    """The tasks of one job.

    Args:
        directory: For logs; `model` in it is the model_dir.
        lists_evaluator: Whether the cluster names the evaluator.
        roles: Which tasks there are.
        later: Which of them `start` starts.
        limits: Time limits, such as `PEER`, in seconds.
        options: See program.py.
    """

    def __init__(
        self,
        directory: Path,
        lists_evaluator: bool = True,
        roles: Any = ROLES,
        later: Any = (),
        limits: Mapping[str, float] = {},
        **options: Any,
    ) -> None:
        self._directory = directory
        self.model_dir = directory / "model"
        ports = dict(zip(ROLES, free_ports(3), strict=True))
        named = [r for r in roles if r != "evaluator" or lists_evaluator]
        self._cluster = {role: [f"127.0.0.1:{ports[role]}"] for role in named}
        self._options = options
        self._limits = {f"LOCKSTEP_{name}_TIMEOUT": str(seconds) for name, seconds in {"PEER": 30, **limits}.items()}
        self.tasks = {role: self._start(role) for role in roles if role not in later}

    def start(self, role: str) -> None:
        """Starts a task that was left out."""
        self.tasks[role] = self._start(role)

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        config = json.dumps({"cluster": self._cluster, "task": {"type": role, "index": 0}})
        command = [sys.executable, "-m", "tests.estimator.program", str(self.model_dir), json.dumps(self._options)]
        env = environment(TF_CONFIG=config, **self._limits)
        with (self._directory / f"{role}.log").open("wb") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)

    def log(self, role: str) -> str:
        """What a task has printed."""
        return (self._directory / f"{role}.log").read_text()

    def codes(self) -> dict[str, int]:
        """Waits for all tasks."""
        deadline = time.monotonic() + SECONDS
        try:
            return {role: task.wait(max(0.1, deadline - time.monotonic())) for role, task in self.tasks.items()}
        finally:
            for task in self.tasks.values():
                task.kill()
                task.wait()

    def results(self) -> dict[str, Any]:
        """Waits for all tasks to end well; returns what each printed."""
        codes = self.codes()
        assert set(codes.values()) == {0}, {r: self.log(r)[-3000:] for r in codes}
        lines = {r: [line for line in self.log(r).splitlines() if line.startswith("RESULT")] for r in codes}
        return {role: json.loads(found[0].removeprefix("RESULT ")) for role, found in lines.items()}

    def wait_for(self, role: str, text: str) -> None:
        """Waits until a task has printed `text`."""
        deadline = time.monotonic() + SECONDS
        while text not in self.log(role):
            assert time.monotonic() < deadline and self.tasks[role].poll() is None, self.log(role)[-3000:]
            time.sleep(0.02)


def _same(results: dict[str, Any]) -> Any:
    values = list(results.values())
    assert all(v == values[0] for v in values), results
    return values[0]


@pytest.mark.parametrize("lists_evaluator", always([True, False], bool), ids=["listed", "outside of the cluster"])
def test_every_role_returns_the_same(tmp_path: Path, lists_evaluator: bool) -> None:
    # Whether an evaluator that the cluster does not list comes before training begins, is chance; it comes by step 5.
    job = Job(tmp_path, lists_evaluator, max_steps=25, hold=5)
    metrics, exports = _same(job.results())
    assert metrics["global_step"] == 25
    evaluated = sorted(summary.scalars(str(job.model_dir / "eval")))
    # It may have been late for the first one, when the newest is 25; but the last one is never missed.
    assert evaluated[-1] == 25
    assert set(evaluated) <= {0, 10, 20, 25}
    assert "Saving dict for global step 25" in job.log("evaluator")
    assert "INFO" not in job.log("worker")
    assert len(exports) == 1 and Path(exports[0]).is_dir()
    assert "Saving dict" not in job.log("chief")


def test_training_without_max_steps_ends_the_evaluator(tmp_path: Path) -> None:
    metrics, exports = _same(Job(tmp_path, rows=96).results())
    assert metrics["global_step"] == 12
    assert exports[0] is not None


def test_early_stopping_ends_the_evaluator(tmp_path: Path) -> None:
    job = Job(tmp_path, stop=3, max_steps=1000, rows=2000)
    metrics, _ = _same(job.results())
    assert 3 <= metrics["global_step"] < 100


def test_a_crash_of_the_trainer_ends_the_evaluator_with_the_error(tmp_path: Path) -> None:
    job = Job(tmp_path, crash=4, slow=0.1)
    codes = job.codes()
    assert 0 not in codes.values()
    assert "The training has failed" in job.log("evaluator")
    assert "on purpose" in job.log("evaluator")


def test_an_evaluator_that_fails_stops_neither_training_nor_its_end(tmp_path: Path) -> None:
    job = Job(tmp_path, max_steps=25, eval_fails=True)
    codes = job.codes()
    assert (codes["chief"], codes["worker"]) == (0, 0), job.log("chief")[-3000:]
    assert codes["evaluator"] != 0
    assert "The evaluator has failed; the training itself has ended well." in job.log("chief")
    assert checkpoint.step_of(checkpoint.latest_checkpoint(str(job.model_dir)) or "") == 25


@pytest.mark.parametrize("victim", always(["chief", "worker"], {"chief"}.__contains__))
def test_a_killed_job_continues(tmp_path: Path, victim: str) -> None:
    killed = Job(tmp_path, roles=("chief", "worker"), max_steps=30, slow=0.05, every=5)
    killed.wait_for("chief", "STEP 12")
    killed.tasks[victim].send_signal(signal.SIGKILL)
    assert 0 not in killed.codes().values()
    reached = checkpoint.step_of(checkpoint.latest_checkpoint(str(killed.model_dir)) or "")
    assert 10 <= reached < 30
    again = Job(tmp_path, roles=("chief", "worker"), max_steps=30, every=5)
    metrics, _ = _same(again.results())
    assert metrics["global_step"] == 30
    assert f"Restoring parameters from {killed.model_dir}/model.ckpt-{reached}" in again.log("chief")


def test_a_chief_alone_beside_an_evaluator_needs_no_strategy(tmp_path: Path) -> None:
    metrics, _ = _same(Job(tmp_path, roles=("chief", "evaluator"), max_steps=7).results())
    assert metrics["global_step"] == 7


ALONE = ("chief", "evaluator")


def step_of_final_export(job: Job) -> list[int]:
    """The steps of the evaluator's final exports."""
    lines = [line for line in job.log("evaluator").splitlines() if line.startswith("RESULT")]
    return [json.loads(line.removeprefix("RESULT "))[0]["global_step"] for line in lines]


@pytest.mark.parametrize("end", always(["a run that ended", "a run that failed"], {"a run that failed"}.__contains__))
def test_an_evaluator_that_starts_before_the_next_run_waits_for_it(tmp_path: Path, end: str) -> None:
    failing = {"crash": 12} if "failed" in end else {}
    first = Job(tmp_path, roles=ALONE, rows=80, slow=0.05, **failing)
    assert set(first.codes().values()) == ({1} if failing else {0}), first.log("evaluator")
    job = Job(tmp_path, roles=ALONE, later=("chief",), rows=160)
    job.wait_for("evaluator", "Saving dict for global step")
    time.sleep(2.0)  # Several of its rounds.
    assert job.tasks["evaluator"].poll() is None, job.log("evaluator")[-3000:]
    job.start("chief")
    metrics, _ = _same(job.results())
    assert metrics["global_step"] >= 50
    assert step_of_final_export(job) == [metrics["global_step"]]


@pytest.mark.exhaustive
def test_an_old_error_of_an_evaluator_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    first = Job(tmp_path, roles=ALONE, max_steps=5, eval_fails=True)
    assert first.codes()["evaluator"] != 0
    job = Job(tmp_path, roles=ALONE, later=("evaluator",), max_steps=10, limits={"PEER": 200})
    job.wait_for("chief", "Waiting for the evaluator to evaluate step 10")
    job.start("evaluator")
    metrics, _ = _same(job.results())
    assert metrics["global_step"] == 10
    assert "The evaluator has failed" not in job.log("chief")


@pytest.mark.exhaustive
def test_a_run_with_nothing_to_train_returns_what_its_own_evaluator_says(tmp_path: Path) -> None:
    """Also if that is done before the trainer comes."""
    assert _same(Job(tmp_path, roles=ALONE, max_steps=10).results())[0]["global_step"] == 10
    job = Job(tmp_path, roles=ALONE, later=("chief",), max_steps=10)
    assert job.tasks["evaluator"].wait(SECONDS) == 0
    job.start("chief")
    metrics, exports = _same(job.results())
    assert metrics["global_step"] == 10
    assert len(list((job.model_dir / "export" / "final").iterdir())) == 2
    assert exports[0] == str(max((job.model_dir / "export" / "final").iterdir()))


def test_an_evaluator_that_comes_after_the_training_evaluates_its_last_checkpoint(tmp_path: Path) -> None:
    job = Job(tmp_path, roles=ALONE, later=("evaluator",), rows=80, limits={"JOIN": 200, "PEER": 200})
    job.wait_for("chief", "Waiting for the evaluator to evaluate step 20")
    job.start("evaluator")
    metrics, exports = _same(job.results())
    assert metrics["global_step"] == 20
    assert Path(exports[0]).is_dir()
    assert "No trainer has started" not in job.log("evaluator"), "the trainer is alive"


@pytest.mark.exhaustive
def test_it_does_so_after_a_limit_if_the_trainer_has_gone(tmp_path: Path) -> None:
    first = Job(tmp_path, roles=("chief",), rows=80)
    assert first.codes() == {"chief": 0}
    job = Job(tmp_path, roles=ALONE, later=("chief",), rows=80, limits={"JOIN": 3})
    assert job.codes() == {"evaluator": 0}, job.log("evaluator")[-3000:]
    assert "No trainer has started in" in job.log("evaluator")
    assert "(LOCKSTEP_JOIN_TIMEOUT)" in job.log("evaluator")
    assert step_of_final_export(job) == [20]


def test_an_evaluator_without_a_trainer_ends_and_says_what_was_there(tmp_path: Path) -> None:
    first = Job(tmp_path, roles=ALONE, rows=80)
    assert set(first.codes().values()) == {0}
    job = Job(tmp_path, roles=ALONE, later=("chief",), rows=80, limits={"JOIN": 1, "PEER": 5})
    assert job.codes()["evaluator"] != 0
    assert "No trainer of this run has been alive" in job.log("evaluator")
    assert "of an earlier run: ended, step 20" in job.log("evaluator")


@pytest.mark.exhaustive
def test_clocks_of_two_machines_are_not_compared(tmp_path: Path) -> None:
    job = Job(tmp_path, roles=ALONE, limits={"PEER": 6}, max_steps=40, slow=0.3, clock=3600)
    metrics, _ = _same(job.results())
    assert metrics["global_step"] == 40


def test_an_evaluator_that_is_stopped_for_good_is_waited_for_up_to_a_limit(tmp_path: Path) -> None:
    job = Job(tmp_path, roles=ALONE, limits={"PEER": 8}, max_steps=20, slow=0.1)
    job.wait_for("evaluator", "Saving dict for global step")
    job.tasks["evaluator"].send_signal(signal.SIGSTOP)
    assert job.tasks["chief"].wait(SECONDS) == 0
    assert "The evaluator has not evaluated step 20" in job.log("chief")
    assert "It is missing, stopped or stuck." in job.log("chief")
    job.tasks["evaluator"].kill()
    job.codes()
