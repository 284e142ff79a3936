"""Loops of one's own follow one device's trajectory: as devices, as processes, and mixed; with any last batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lockstep as ls
from tests.distribute import loops
from tests.support.cluster import Cluster, shared

# The last batch divides; it does not; it leaves replicas without data.
CASES = [
    {"rows": 16, "averages": False},
    {"rows": 13, "averages": False},
    {"rows": 13, "averages": True},
    {"rows": 9, "averages": True},
]
_UNEVEN = [pytest.param({"rows": 16}, marks=pytest.mark.exhaustive), {"rows": 9}]


class _OneDevice(dict[str, dict[str, np.ndarray]]):
    """What one device computes."""

    def of(self, name: str, case: dict[str, Any]) -> dict[str, np.ndarray]:
        key = f"{name} {case}"
        if key not in self:
            self[key] = getattr(loops, name)(ls.distribute.OneDeviceStrategy("/cpu:0"), **case)
        return self[key]


@pytest.fixture(scope="module")
def one_device() -> _OneDevice:
    return _OneDevice()


pair = shared(2, 2)


workers = shared(2)


def _alike(expected: dict[str, np.ndarray], *found: dict[str, np.ndarray]) -> None:
    for one in found:
        assert one.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(one[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("count", [2, 4])
def test_devices(one_device: _OneDevice, case: dict[str, Any], count: int) -> None:
    strategy = ls.distribute.MirroredStrategy([f"cpu:{i}" for i in range(count)])
    _alike(one_device.of("plain", case), loops.plain(strategy, **case))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_processes_of_two_devices(one_device: _OneDevice, pair: Cluster, case: dict[str, Any]) -> None:
    _alike(one_device.of("plain", case), *pair.run("tests.distribute.loops:plain", **case))


@pytest.mark.parametrize("case", CASES[1:3], ids=str)
def test_processes(one_device: _OneDevice, workers: Cluster, case: dict[str, Any]) -> None:
    _alike(one_device.of("plain", case), *workers.run("tests.distribute.loops:plain", **case))


@pytest.mark.parametrize("case", _UNEVEN, ids=str)
def test_keras_models(one_device: _OneDevice, pair: Cluster, case: dict[str, Any]) -> None:
    expected = one_device.of("keras_model", case)
    _alike(expected, loops.keras_model(ls.distribute.MirroredStrategy(), **case))
    _alike(expected, *pair.run("tests.distribute.loops:keras_model", **case))


@pytest.mark.parametrize("case", _UNEVEN, ids=str)
def test_tapes(one_device: _OneDevice, pair: Cluster, case: dict[str, Any]) -> None:
    expected = one_device.of("tapes", case)
    _alike(expected, loops.tapes(ls.distribute.MirroredStrategy(), **case))
    _alike(expected, *pair.run("tests.distribute.loops:tapes", **case))


def test_values_of_several_processes(pair: Cluster) -> None:
    """What four devices of one process say, two processes of two say, each of them."""
    expected = loops.values(ls.distribute.MirroredStrategy())
    _alike(expected, *pair.run("tests.distribute.loops:values"))


def test_replicas_one_after_the_other_in_several_processes(pair: Cluster) -> None:
    expected = loops.debugged(ls.distribute.MirroredStrategy())
    _alike(expected, *pair.run("tests.distribute.loops:debugged"))
