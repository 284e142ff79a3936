"""Shares of an Estimator's batches: the numbers of a strategy with so many replicas, the same bits in any layout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lockstep._engine.servers.job import Job
from lockstep.distribute import ParameterServerStrategy
from lockstep.errors import UnsupportedError
from tests.engine.keras.servers.jobs import ServerJob
from tests.estimator.servers import sync_replicas
from tests.estimator.servers.replica_cases import CASES, COMMON
from tests.support.cluster import ROOT, environment
from tests.support.exhaustive import always

# Feature columns compute in float32 whatever Keras' floatx is, as TensorFlow's do.
TOLERANCE, FLOAT32 = 1e-9, {"text": 1e-6}
_PROGRAM = "tests.estimator.servers.replica_cases"
Results = dict[str, np.ndarray]
# Replicas; workers and servers. The first layout of each number of replicas has the most cases.
LAYOUTS = [(2, 2, 2), (2, 1, 1), (2, 3, 1), (4, 2, 2), (4, 1, 1), (4, 3, 1)]
_ALWAYS = {(2, 2, 2), (2, 1, 1)}
# One task alone computes what several do; not every case shows it anew.
_FEW = ["clipped", "a table, clipped"]
# Of the first layout; with `--exhaustive` it has all.
_MANY = [*_FEW, "averages and masks", "text", "gradients of gradients"]


@pytest.fixture(scope="module")
def cases_of_first(request: pytest.FixtureRequest) -> Sequence[str]:
    """Returns the cases that the first job of each number of replicas computes."""
    return [*CASES, *COMMON] if request.config.getoption("--exhaustive") else _MANY


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory, cases_of_first: Sequence[str]) -> dict[int, dict[str, Results]]:
    """Returns the results of one process with so many devices, by their number."""
    return _Mirrored(tmp_path_factory, cases_of_first)


class _Mirrored(dict[int, dict[str, Results]]):
    def __init__(self, directories: pytest.TempPathFactory, cases: Sequence[str]) -> None:
        super().__init__()
        self._directories, self._cases = directories, cases

    def __missing__(self, replicas: int) -> dict[str, Results]:
        folder, cases = self._directories.mktemp("mirrored") / "results", self._cases
        folder.mkdir()
        command = [sys.executable, "-m", _PROGRAM, str(folder), "mirrored", str(replicas), *cases]
        subprocess.run(command, env=environment(devices=replicas), cwd=ROOT, check=True, timeout=400)
        self[replicas] = {case: _load(folder / f"{case}.npz") for case in cases}
        return self[replicas]


def _load(path: Path) -> Results:
    with np.load(path) as found:
        return {key.replace("|", "/"): found[key] for key in found.files}


@pytest.fixture(scope="module")
def first_results() -> dict[int, dict[str, Results]]:
    """Returns the results of the first job with so many replicas, by their number."""
    return {}


@pytest.mark.cluster
@pytest.mark.parametrize(("replicas", "workers", "servers"), always(LAYOUTS, _ALWAYS.__contains__))
def test_replicas_are_those_of_a_mirrored_strategy(
    replicas: int,
    workers: int,
    servers: int,
    mirrored: dict[int, dict[str, Results]],
    first_results: dict[int, dict[str, Results]],
    cases_of_first: Sequence[str],
    tmp_path: Path,
) -> None:
    cases = _FEW if replicas in first_results and workers == 1 else cases_of_first
    job = ServerJob(_PROGRAM, workers, servers, tmp_path, ["servers", str(replicas), *cases])
    job.wait()
    first = first_results.setdefault(replicas, {case: job.results("worker-0", case) for case in cases})
    for case in cases:
        results, expected = job.results("worker-0", case), mirrored[replicas][case]
        assert results.keys() == expected.keys() == first[case].keys(), case
        for key, value in expected.items():
            atol = FLOAT32.get(case, TOLERANCE)
            np.testing.assert_allclose(results[key], value, rtol=0, atol=atol, err_msg=f"{case}: {key}")
            assert np.array_equal(results[key], first[case][key]), f"{key} of {case!r} is not bit-equal"


def test_a_sync_replicas_optimizer_has_replicas_of_its_own(tmp_path: Path) -> None:
    strategy = ParameterServerStrategy._of_job(Job.in_process(1, 1)[0], mode="sync", replicas=2)
    with pytest.raises(UnsupportedError, match=r"replicas=2.*leave replicas out, and say how many"):
        sync_replicas.train_case("Adam", tmp_path, strategy)
