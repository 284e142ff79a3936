"""Tasks of one machine get equal parts of its cores, unless somebody has decided already."""

from __future__ import annotations

import os

import pytest

from lockstep._engine.runtime import core_binding, local_devices
from lockstep.errors import ArgumentError


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Returns the cores that the process is bound to, of a machine of eight."""
    bound = set(range(8))

    def bind(pid: int, wanted: list[int]) -> None:
        assert pid == 0
        bound.intersection_update(wanted)

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(bound), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", bind, raising=False)
    monkeypatch.setattr(local_devices, "gpu_count", lambda: 0)
    monkeypatch.delenv(core_binding.VARIABLE, raising=False)
    return bound


@pytest.mark.parametrize(
    ("number", "count", "own"),
    [
        (0, 1, range(8)),
        (0, 2, range(4)),
        (1, 2, range(4, 8)),
        (7, 8, [7]),
        # Not divisible: with a core for each, two of eight would have nothing to do.
        (1, 3, range(8)),
        (0, 16, range(8)),
    ],
)
def test_parts_are_equal(number: int, count: int, own: list[int], cores: set[int]) -> None:
    core_binding.bind_to_part(number, count)
    assert cores == set(own)


def test_a_process_that_is_bound_stays_as_it_is(cores: set[int]) -> None:
    cores -= {7}
    core_binding.bind_to_part(1, 2)
    assert cores == set(range(7))


def test_a_task_with_gpus_is_not_bound(cores: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_devices, "gpu_count", lambda: 1)
    core_binding.bind_to_part(1, 2)
    assert cores == set(range(8))


def test_the_environment_decides(cores: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(core_binding.VARIABLE, "0")
    core_binding.bind_to_part(1, 2)
    assert cores == set(range(8))
    monkeypatch.setenv(core_binding.VARIABLE, "yes")
    with pytest.raises(ArgumentError, match=r"LOCKSTEP_BIND_CORES must be 1 \(.*\) or 0. Received: 'yes'"):
        core_binding.bind_to_part(1, 2)


def test_a_system_that_forbids_it_goes_on(cores: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, wanted: list[int]) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    core_binding.bind_to_part(1, 2)
    assert cores == set(range(8))
