"""Sums over replicas of real processes, through shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lockstep.testing import TaskError
from tests.support.cluster import Cluster

pytestmark = pytest.mark.cluster

_MODULE = "tests.cpu.shared_memory.cases"
_LAYOUTS = {"2 processes of 2 devices": (2, 2), "3 processes": (3, 1)}


@pytest.fixture(scope="module", params=_LAYOUTS.values(), ids=list(_LAYOUTS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Processes, of one machine."""
    cluster = Cluster(*request.param, tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


def test_processes_of_one_machine_share_memory(cluster: Cluster) -> None:
    assert all(r["on"] for r in cluster.run(f"{_MODULE}:is_on"))


def test_every_type_is_summed_as_xla_does(cluster: Cluster) -> None:
    for found in cluster.run(f"{_MODULE}:every_type"):
        for name in [n.removeprefix("found ") for n in found if n.startswith("found ")]:
            np.testing.assert_array_equal(found[f"found {name}"], found[f"expected {name}"], err_msg=name)


@pytest.mark.parametrize("pack_bytes", [0, 1, 1000])
def test_large_sums_are_right_and_the_same_bits_everywhere(cluster: Cluster, pack_bytes: int) -> None:
    first, *others = cluster.run(f"{_MODULE}:large", pack_bytes=pack_bytes)
    assert first.pop("error") < 1e-5
    for name, value in first.items():
        np.testing.assert_array_equal(value, np.broadcast_to(value[:1], value.shape))
        for other in others:
            np.testing.assert_array_equal(other[name][0], value[0])


def test_bfloat16_is_summed_in_float32_and_takes_half_the_bytes(cluster: Cluster) -> None:
    first, *others = found = cluster.run(f"{_MODULE}:narrow")
    is_one_each = len(found) == 3
    for each in found:
        assert 1e-3 < each["error"] < 0.1
        assert each["residuals"] == 0 and each["exact"] < 1e-5
        # What several replicas of a process add up to is written in float32.
        assert each["narrow"] == each["wide"] / (2 if is_one_each else 1) > 0
    for other in others:
        for name in "012":
            np.testing.assert_array_equal(other[name], first[name])


def test_sums_inside_loops(cluster: Cluster) -> None:
    assert all(r["error"] < 1e-5 for r in cluster.run(f"{_MODULE}:inside_loops"))


def test_many_sums_in_flight(cluster: Cluster) -> None:
    assert all(r["done"] for r in cluster.run(f"{_MODULE}:many_in_flight"))


def test_unused_and_batched_sums(cluster: Cluster) -> None:
    for found in cluster.run(f"{_MODULE}:unused"):
        np.testing.assert_array_equal(found["found"], found["expected"])


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Cluster]:
    """Two processes that may end as they like, and must leave no shared memory behind."""
    before = set(os.listdir("/dev/shm"))
    cluster = Cluster(2, 1, tmp_path / "doomed")
    yield cluster
    cluster.close()
    assert set(os.listdir("/dev/shm")) <= before


def test_the_others_are_told_who_was_killed(doomed: Cluster) -> None:
    with pytest.raises(TaskError) as caught:
        doomed.run(f"{_MODULE}:dies", how="killed")
    assert caught.value.errors == {"worker 1": "The process has ended: killed by SIGKILL.\n"}
    told = caught.value.results["worker 0"]
    assert str(told["type"]) == "PeerError"
    assert "worker 1 has gone" in str(told["text"])


def test_the_others_do_not_wait_for_one_that_failed(doomed: Cluster) -> None:
    with pytest.raises(TaskError, match="worker 1 failed first: ValueError: disk gone") as caught:
        doomed.run(f"{_MODULE}:dies", how="raises")
    assert caught.value.errors["worker 0"] == "The process has ended: exit code 1.\n"
