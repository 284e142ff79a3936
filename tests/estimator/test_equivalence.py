"""The invariant: an Estimator on N replicas follows one device's trajectory, as devices, as processes, and mixed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.estimator.cases import MODEL_FNS
from tests.support.cluster import Cluster, shared
from tests.support.exhaustive import always

pytestmark = pytest.mark.cluster

# (processes, devices of each); two processes of one device: test_two_workers.py.
LAYOUTS = [(2, 2), *(pytest.param(layout, marks=pytest.mark.exhaustive) for layout in [(1, 4), (3, 1)])]
# What another case shows, too.
_OTHERS = ("keras", "clipping a sum", "clipping two networks", "a rate of gradients")
TOLERANCES = {"float64": 1e-9, "float32": 2e-5}

Results = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Results]]:
    """What one device computes, case by case."""
    directory = tmp_path_factory.mktemp("one")
    cluster = Cluster(1, 1, directory)
    yield _Memo(cluster, directory)
    cluster.close()


class _Memo(dict[tuple[str, str], Results]):
    def __init__(self, cluster: Cluster, directory: Path) -> None:
        super().__init__()
        self._cluster = cluster
        self._directory = directory

    def __missing__(self, key: tuple[str, str]) -> Results:
        self[key] = _run(self._cluster, self._directory, *key)[0]
        return self[key]


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: f"{layout[0]}x{layout[1]}")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of the layouts."""
    cluster = Cluster(*request.param, tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


two = shared(2)


def _run(cluster: Cluster, directory: Path, case: str, floatx: str, optimized: bool = False) -> list[Results]:
    model_dir = str(directory / f"{case} {floatx}")
    return cluster.run("tests.estimator.cases:run", case=case, floatx=floatx, model_dir=model_dir, optimized=optimized)


@pytest.mark.parametrize(
    ("case", "floatx"), always([(case, "float64") for case in MODEL_FNS], lambda case: case[0] not in _OTHERS)
)
def test_float64(
    case: str, floatx: str, cluster: Cluster, one_device: dict[tuple[str, str], Results], tmp_path: Path
) -> None:
    _compare(case, floatx, cluster, one_device, tmp_path)


@pytest.mark.parametrize("cluster", [(2, 2)], ids=["2x2"], indirect=True)
@pytest.mark.parametrize(("case", "floatx"), [(case, "float32") for case in ("sgd", "adam")])
def test_float32(
    case: str, floatx: str, cluster: Cluster, one_device: dict[tuple[str, str], Results], tmp_path: Path
) -> None:
    _compare(case, floatx, cluster, one_device, tmp_path)


def test_compiled_as_users_programs_are(
    two: Cluster, one_device: dict[tuple[str, str], Results], tmp_path: Path
) -> None:
    """With XLA's optimizations, which the other cases in float64 go without."""
    _compare("clipping", "float64", two, one_device, tmp_path, optimized=True)


def _compare(
    case: str,
    floatx: str,
    cluster: Cluster,
    one_device: dict[tuple[str, str], Results],
    tmp_path: Path,
    optimized: bool = False,
) -> None:
    expected = one_device[case, floatx]
    for found in _run(cluster, tmp_path, case, floatx, optimized):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=TOLERANCES[floatx], err_msg=name)
