"""The invariant: N replicas follow one device's trajectory, as devices, as processes, and mixed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.engine.keras.cases import CASES
from tests.support.cluster import Cluster, shared
from tests.support.exhaustive import always

pytestmark = pytest.mark.cluster

# (processes, devices of each); two processes of one device: test_two_workers.py.
LAYOUTS = [(1, 4), pytest.param((2, 2), marks=pytest.mark.exhaustive)]
TOLERANCES = {"float64": 1e-9, "float32": 2e-5}
# In float32, Lion's sign of a momentum near zero, and a whole epoch of Adam's first steps, amplify rounding.
_FLOAT32 = always(["sgd with momentum", "dropout", "wide layers"], {"dropout"}.__contains__)


# What a single replica could matter to, and a number of processes.
_ONE = always(CASES, {"dropout", "time distributed", "custom train_step"}.__contains__)
_THREE = always(CASES, {"batch normalisation"}.__contains__)
# What replicas could be wrong about in different ways. Optimizers see sums of gradients alone.
_DEVICES = always(
    CASES,
    {
        *("batch normalisation", "dropout", "contrastive loss"),
        *("convolutional", "masked gru and lstm", "custom train_step", "on batch"),
    }.__contains__,
)
# One of each family: dense, normalised, with random numbers, convolutional, recurrent, with a step of its own.
_FAMILIES = always(
    [
        *("wide layers", "batch normalisation", "dropout"),
        *("convolutional", "masked gru and lstm", "custom train_step"),
    ],
    {"batch normalisation"}.__contains__,
)

Results = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Results]]:
    """What plain Keras computes on one device, case by case."""
    cluster = Cluster(0, 1, tmp_path_factory.mktemp("plain"))
    yield _Memo(cluster)
    cluster.close()


class _Memo(dict[tuple[str, str], Results]):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def __missing__(self, key: tuple[str, str]) -> Results:
        case, floatx = key
        self[key] = self._cluster.run("tests.engine.keras.cases:run", case=case, floatx=floatx)[0]
        return self[key]


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: f"{layout[0]}x{layout[1]}")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Lockstep on one of the layouts."""
    cluster = Cluster(*request.param, tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


two = shared(2)
three = shared(3)


@pytest.mark.parametrize("case", _DEVICES)
def test_float64(case: str, cluster: Cluster, one_device: dict[tuple[str, str], Results]) -> None:
    _check(case, "float64", cluster, one_device)


@pytest.mark.parametrize("cluster", [(1, 1)], ids=["1x1"], indirect=True)
@pytest.mark.parametrize("case", _ONE)
def test_one_replica(case: str, cluster: Cluster, one_device: dict[tuple[str, str], Results]) -> None:
    _check(case, "float64", cluster, one_device)


@pytest.mark.parametrize("cluster", [(2, 2)], ids=["2x2"], indirect=True)
@pytest.mark.parametrize("case", _FLOAT32)
def test_float32(case: str, cluster: Cluster, one_device: dict[tuple[str, str], Results]) -> None:
    _check(case, "float32", cluster, one_device)


@pytest.mark.parametrize("cluster", [(1, 1)], ids=["1x1"], indirect=True)
def test_one_replica_in_float32(cluster: Cluster, one_device: dict[tuple[str, str], Results]) -> None:
    """Only one device alone has kernels of its own, and only in this type."""
    _check("wide layers", "float32", cluster, one_device)


@pytest.mark.parametrize("case", _THREE)
def test_three_processes(case: str, three: Cluster, one_device: dict[tuple[str, str], Results]) -> None:
    _check(case, "float64", three, one_device)


@pytest.mark.parametrize("case", _FAMILIES)
def test_compiled_as_users_programs_are(case: str, two: Cluster, one_device: dict[tuple[str, str], Results]) -> None:
    """With XLA's optimizations, which the other cases in float64 go without."""
    _check(case, "float64", two, one_device, optimized=True)


def _check(
    case: str, floatx: str, cluster: Cluster, one_device: dict[tuple[str, str], Results], optimized: bool = False
) -> None:
    expected = one_device[case, floatx]
    members = cluster.run("tests.engine.keras.cases:run", case=case, floatx=floatx, optimized=optimized)
    for worker, found in enumerate(members):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            difference = np.max(np.abs(found[name].astype(float) - value.astype(float)), initial=0.0)
            assert difference <= TOLERANCES[floatx], f"{name} on worker {worker} differs by {difference:g}"


def test_data_moves_the_weights(one_device: dict[tuple[str, str], Results]) -> None:
    """The comparison means something: cases differ from each other by far more than the tolerance."""
    first, second = (one_device[case, "float64"] for case in ("lion", "sgd with momentum"))
    assert max(np.max(np.abs(first[n] - second[n])) for n in first if n.startswith("weight 0")) > 1e-3
