"""Virtual CPU devices and the thread pool that they need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax._src import xla_bridge

import lockstep
from lockstep._engine.runtime import local_devices
from lockstep.errors import ArgumentError, StartupOrderError
from tests.engine.runtime.jobs import Job
from tests.engine.runtime.properties import steady


def test_the_pool_has_four_threads_a_device_but_no_fewer_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert [local_devices.pool_size(n) for n in (1, 2, 8)] == [6, 8, 32]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert local_devices.pool_size(1) == 4


@pytest.mark.parametrize(
    ("before", "devices", "after"),
    [(None, 4, "16"), ("3", 4, "16"), ("64", 4, "64"), ("many", 4, "16"), (None, 1, None), ("3", 1, "3")],
)
def test_the_pool_grows_for_several_devices_before_jax_starts(
    before: str | None, devices: int, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(local_devices, "configured_devices", lambda: devices)
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: True)
    monkeypatch.delenv("NPROC", raising=False)
    if before:
        monkeypatch.setenv("NPROC", before)
    local_devices.prepare_thread_pool()
    assert os.environ.get("NPROC") == before, "too late: what XLA has read at its start stays"
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: False)
    local_devices.prepare_thread_pool()
    assert os.environ.get("NPROC") == after


@pytest.mark.parametrize(
    ("before", "devices", "tasks", "after"),
    [
        (None, 1, 1, None),
        (None, 1, 2, "4"),
        (None, 1, 3, "3"),
        (None, 1, 20, "1"),
        ("6", 1, 2, "6"),
        (None, 4, 2, None),
    ],
)
def test_tasks_of_one_machine_share_its_cores_before_jax_starts(
    before: str | None, devices: int, tasks: int, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)
    monkeypatch.setattr(local_devices, "configured_devices", lambda: devices)
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: True)
    # Set, so that it is as it was when the test ends.
    monkeypatch.setenv("NPROC", before or "")
    if not before:
        monkeypatch.delenv("NPROC")
    local_devices.share_machine(tasks)
    assert os.environ.get("NPROC") == before, "too late: what XLA has read at its start stays"
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: False)
    local_devices.share_machine(tasks)
    assert os.environ.get("NPROC") == after
    assert local_devices.usable_cores() == min(5, int(after or 8))


def test_devices_are_counted_in_both_of_jax_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_devices.configured_devices() == jax.config.jax_num_cpu_devices
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_force_host_platform_device_count=96 --xla_b=2")
    assert local_devices.configured_devices() == 96


def test_a_pool_that_would_hang_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPROC", "7")
    local_devices.check_thread_pool(1)
    local_devices.check_thread_pool(3)
    with pytest.raises(StartupOrderError, match="4 virtual CPU devices need a thread pool of at least 8") as error:
        local_devices.check_thread_pool(4)
    assert "which has 7" in str(error.value)
    assert f"NPROC={local_devices.pool_size(4)}" in str(error.value)


@steady
@example("²", 4)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(1, 64))
def test_whatever_the_pool_is_set_to(text: str, devices: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPROC", text)
        patch.setattr(local_devices, "configured_devices", lambda: devices)
        patch.setattr(xla_bridge, "backends_are_initialized", lambda: False)
        local_devices.prepare_thread_pool()
        local_devices.check_thread_pool(devices)


@pytest.mark.parametrize("count", [0, -1, 2.0, "4", True, None])
def test_a_number_of_devices_that_is_none(count: Any) -> None:
    with pytest.raises(ArgumentError, match="must be a positive integer") as error:
        lockstep.config.set_logical_cpu_devices(count)
    assert f"Received: {count!r}" in str(error.value)


def test_devices_cannot_be_set_when_jax_has_started() -> None:
    assert jax.devices()
    with pytest.raises(StartupOrderError, match=r"Received: 4 after its start.*--devices-per-worker 4"):
        lockstep.config.set_logical_cpu_devices(4)


def test_devices_are_set_from_the_program(job: Job) -> None:
    task = job.start("""
        import os
        import lockstep as ls
        ls.config.set_logical_cpu_devices(3)
        print(ls.distribute.MirroredStrategy().num_replicas_in_sync, os.environ["NPROC"], flush=True)
    """)
    assert task.wait() == 0, task.err
    assert task.out.split() == ["3", str(local_devices.pool_size(3))]


def test_devices_that_jax_split_by_itself_are_refused_if_they_would_hang(job: Job) -> None:
    task = job.start("""
        import jax
        jax.config.update("jax_num_cpu_devices", 16)
        jax.devices()
        import lockstep as ls
        ls.distribute.MirroredStrategy()
    """)
    if (os.cpu_count() or 1) >= 32:
        pytest.skip("this machine has threads enough for 16 devices")
    assert task.wait() == 1
    assert "StartupOrderError: 16 virtual CPU devices need a thread pool of at least 32" in task.err


def test_gpus_are_counted_without_the_drivers_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A sandbox may hide the folder of the driver, and show the devices."""
    monkeypatch.setattr(local_devices, "_NVIDIA", tmp_path / "hidden")
    monkeypatch.setattr(local_devices, "_DEVICES", tmp_path)
    assert local_devices.nvidia_gpus() == 0
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert local_devices.nvidia_gpus() == 2
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "0000:01:00.0").mkdir()
    assert local_devices.nvidia_gpus() == 1
