"""SyncReplicasOptimizer in jobs: an update for the mean of several batches' gradients, whoever computes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lockstep as ls
from tests.estimator.servers.sync_replicas import CASES, UPDATES, last_values, train_case
from tests.support.cluster import ROOT, environment

_JOBS = {"1 worker, 1 server": (1, 1), "2 workers, 2 servers": (2, 2)}


@pytest.mark.cluster
def test_jobs_come_to_the_numbers_of_one_device(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    cases = list(CASES) if request.config.getoption("--exhaustive") else ["Adam", "clipped by each"]
    for name, (workers, servers) in _JOBS.items():
        command = [
            sys.executable,
            "-m",
            "lockstep._launch",
            "run",
            "--chief",
            f"--workers={workers}",
            f"--ps={servers}",
        ]
        program = ["-m", "tests.estimator.servers.sync_replicas", str(tmp_path / name), *cases]
        done = subprocess.run(
            [*command, *program], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    for case in cases:
        alone = train_case(case, tmp_path / "alone" / case)
        few, many = (last_values(tmp_path / job / case) for job in _JOBS)
        assert alone.keys() == few.keys() == many.keys()
        assert alone["global_step"] == few["global_step"] == UPDATES
        for key, value in alone.items():
            np.testing.assert_allclose(few[key], value, rtol=2e-5, atol=2e-6, err_msg=f"{case}: {key}")
            np.testing.assert_array_equal(many[key], few[key], err_msg=f"{case}: {key}")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["Adam", "averages and masks"])  # Of the canned one replicas' losses are added up.
def test_it_is_training_with_as_many_replicas(case: str, tmp_path: Path) -> None:
    strategy = ls.distribute.MultiWorkerMirroredStrategy(batch_statistics="replica")
    replicas = strategy.num_replicas_in_sync
    assert replicas > 1
    mirrored = train_case(case, tmp_path / "mirrored", strategy, 0, rows=96)
    alone = train_case(case, tmp_path / "alone", None, replicas, rows=96)
    assert mirrored.keys() == alone.keys()
    for key, value in mirrored.items():
        np.testing.assert_allclose(alone[key], value, rtol=2e-5, atol=2e-6, err_msg=key)
