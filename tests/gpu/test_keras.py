"""The invariant on a GPU: one replica, and two of two processes, follow plain Keras on that GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.engine.keras.cases import CASES
from tests.gpu.comparison import TOLERANCES, assert_equal
from tests.support.cluster import Cluster

Start = Callable[..., Cluster]

# One of each family: dense, normalised, with random numbers, convolutional, recurrent, with a step of its own.
_FAMILIES = ["wide layers", "batch normalisation", "dropout", "convolutional", "masked gru and lstm"]


@pytest.fixture(scope="module")
def plain(start: Start) -> Callable[..., dict[str, np.ndarray]]:
    """What plain Keras computes on the GPU, case by case."""
    known: dict[tuple[str, str, bool], dict[str, np.ndarray]] = {}

    def of(case: str, floatx: str, on_cpu: bool = False) -> dict[str, np.ndarray]:
        key = (case, floatx, on_cpu)
        if key not in known:
            known[key] = _run(start(0, on_cpu=on_cpu), case, floatx)[0]
        return known[key]

    return of


def _run(cluster: Cluster, case: str, floatx: str, optimized: bool = False) -> list[dict[str, np.ndarray]]:
    return cluster.run("tests.engine.keras.cases:run", case=case, floatx=floatx, optimized=optimized)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_float64(case: str, workers: int, start: Start, plain: Callable[..., dict[str, np.ndarray]]) -> None:
    expected = plain(case, "float64")
    assert_equal(_run(start(workers), case, "float64"), expected, TOLERANCES["float64"])


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", ["sgd with momentum", "dropout", "wide layers"])
def test_float32(case: str, workers: int, start: Start, plain: Callable[..., dict[str, np.ndarray]]) -> None:
    expected = plain(case, "float32")
    assert_equal(_run(start(workers), case, "float32"), expected, TOLERANCES["float32"])


@pytest.mark.parametrize("case", _FAMILIES)
def test_follows_the_cpu(case: str, start: Start, plain: Callable[..., dict[str, np.ndarray]]) -> None:
    """The same random numbers, the same order of the data, the same arithmetic in float64."""
    expected = plain(case, "float64", on_cpu=True)
    assert_equal(_run(start(1), case, "float64"), expected, TOLERANCES["float64"])


@pytest.mark.parametrize("case", ["convolutional", "dropout"])
def test_compiled_as_users_programs_are(case: str, start: Start, plain: Callable[..., dict[str, np.ndarray]]) -> None:
    expected = plain(case, "float64")
    assert_equal(_run(start(2), case, "float64", optimized=True), expected, TOLERANCES["float64"])
