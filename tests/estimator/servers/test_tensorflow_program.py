"""A program of TensorFlow 1 for chief, worker, ps and evaluator, with its import line changed, alone and as a job."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep as ls
from tests.estimator.servers.sync_replicas import last_values
from tests.support.cluster import ROOT, environment

pytestmark = pytest.mark.cluster
_PROGRAM = "tests.estimator.servers.tensorflow_program"
_JOB = ["-m", "lockstep._launch", "run", "--chief", "--workers", "2", "--ps", "2", "--evaluator"]


def _log_of(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def _accuracy(log: str, steps: int = 60) -> float:
    found = re.findall(rf"Saving dict for global step {steps}: accuracy = ([0-9.]+), global_step = {steps}", log)
    assert found, log[-4000:]
    return float(found[-1])


def test_a_job_with_synchronous_replicas_comes_to_what_one_process_does(tmp_path: Path) -> None:
    alone = _log_of("-m", _PROGRAM, "--model_dir", str(tmp_path / "alone"), "--sync_replicas", "3")
    job = _log_of(*_JOB, "-m", _PROGRAM, "--model_dir", str(tmp_path / "job"), "--sync_replicas", "3")
    assert _accuracy(job) == pytest.approx(_accuracy(alone), abs=0.005)
    expected, values = (last_values(tmp_path / name) for name in ("alone", "job"))
    assert values.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(values[key], value, rtol=2e-5, atol=2e-6, err_msg=key)
    assert "[evaluator 0]" in job and "SyncReplicasV2: replicas_to_aggregate=3; total_num_replicas=3" in job
    # The evaluator has exported what the last checkpoint holds.
    (exported,) = (tmp_path / "job" / "export" / "serving").iterdir()
    serve: Any = ls.saved_model.load(str(exported)).signatures["serving_default"]
    outputs = serve(
        age=np.float32([0.9, -0.9]), hours=np.float32([0.8, -0.8]), degree=np.array(["doctorate", "school"])
    )
    assert np.asarray(outputs["class"]).tolist() == [1, 0]


def test_a_job_without_them_trains_asynchronously(tmp_path: Path) -> None:
    # How late updates are depends on the machine, and so does how far 60 of them come: 0.89 on a busy one.
    steps = 240
    job = _log_of(*_JOB, "-m", _PROGRAM, "--model_dir", str(tmp_path / "job"), "--steps", str(steps))
    assert _accuracy(job, steps) > 0.9
    assert last_values(tmp_path / "job")["global_step"] == steps
