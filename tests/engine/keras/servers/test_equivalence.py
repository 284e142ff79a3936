"""Synchronous training with parameter servers follows plain Keras, with any number of workers and servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.engine.keras.cases import CASES
from tests.engine.keras.servers.jobs import ServerJob
from tests.support.cluster import ROOT, Cluster, environment

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# The first has all cases that are run: the others are compared with it, bit by bit.
LAYOUTS = [(3, 2), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
TOLERANCE = 1e-9
_PROGRAM = "tests.engine.keras.servers.program"
Results = dict[str, np.ndarray]
_ALWAYS = [(1, 1), (3, 2)]
# Not every case shows anew that layouts are alike; with `--exhaustive` all of them run.
_FEW = ["batch normalisation", "masked gru and lstm", "two inputs, two outputs"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Results]]:
    """What plain Keras computes on one device."""
    cluster = Cluster(0, 1, tmp_path_factory.mktemp("plain"))
    yield _Plain(cluster)
    cluster.close()


class _Plain(dict[str, Results]):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def __missing__(self, case: str) -> Results:
        (self[case],) = self._cluster.run("tests.engine.keras.cases:run", case=case, floatx="float64")
        return self[case]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], dict[str, Results]]:
    """What the chiefs of jobs have come to, by layout."""
    return {}


@pytest.mark.parametrize(
    "layout",
    [one if one in _ALWAYS else pytest.param(one, marks=pytest.mark.exhaustive) for one in LAYOUTS],
    ids=lambda layout: f"{layout[0]}x{layout[1]}",
)
def test_synchronous(
    layout: tuple[int, int],
    plain: dict[str, Results],
    found: dict[tuple[int, int], dict[str, Results]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    cases = list(CASES) if request.config.getoption("--exhaustive") else _FEW
    job = ServerJob(_PROGRAM, *layout, tmp_path, ["sync", "1", "float64", *cases])
    job.wait()
    for name in job.tasks:
        for case in cases:
            _check(job.results(name, case), plain[case], f"{case!r} on {name}")
    found[layout] = {case: job.results("worker-0", case) for case in cases}
    first = next(iter(found.values()))
    for case, results in found[layout].items():
        for key, value in results.items():
            assert np.array_equal(value, first[case][key], equal_nan=True), f"{key} of {case!r} is not bit-equal"


def test_asynchronous_without_staleness(plain: dict[str, Results], tmp_path: Path) -> None:
    cases = ["sgd with momentum", "dropout", "masked gru and lstm"]
    job = ServerJob(_PROGRAM, 1, 1, tmp_path, ["async", "1", "float64", *cases])
    job.wait()
    for case in cases:
        _check(job.results("worker-0", case), plain[case], repr(case))


def test_replicas_are_those_of_a_mirrored_strategy(tmp_path: Path) -> None:
    """Also the last batch, of three examples, which two replicas cannot divide."""
    cases = ["batch normalisation", "dropout", "on batch"]
    (tmp_path / "mirrored").mkdir()
    arguments = [str(tmp_path / "mirrored"), "mirrored", "2", "float64", *cases]
    subprocess.run(
        [sys.executable, "-m", _PROGRAM, *arguments], env=environment(devices=2), cwd=ROOT, check=True, timeout=300
    )
    job = ServerJob(_PROGRAM, 2, 2, tmp_path / "job", ["sync", "2", "float64", *cases])
    job.wait()
    for case in cases:
        with np.load(tmp_path / "mirrored" / f"{case}.npz") as mirrored:
            expected = {key.replace("|", "/"): mirrored[key] for key in mirrored.files}
        for name in ("worker-0", "worker-1", "ps-0"):
            _check(job.results(name, case), expected, f"{case!r} on {name}")


def _check(results: Results, expected: Results, where: str) -> None:
    assert results.keys() == expected.keys(), where
    for name, value in expected.items():
        difference = np.max(np.abs(results[name].astype(float) - value.astype(float)), initial=0.0)
        assert difference <= TOLERANCE, f"{name} of {where} differs by {difference:g}"
