"""Processes on one GPU; skipped without one, or without jax's plugin for it. `make test-gpu` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lockstep._engine.runtime import local_devices
from tests.support.cluster import ON_GPU, Cluster


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    """Skips what needs a GPU where there is none."""
    if not local_devices.gpu_count():
        pytest.skip("there is no NVIDIA GPU, or jax[cuda] is not installed")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, cluster_mark: None) -> Iterator[Callable[..., Cluster]]:
    """Starts processes on the GPU, once for each number and strategy; all end with the module."""
    started: dict[tuple[int, str, bool], Cluster] = {}

    def start(workers: int, kind: str = "", on_cpu: bool = False) -> Cluster:
        key = (workers, kind, on_cpu)
        if key not in started:
            directory = tmp_path_factory.mktemp(f"gpu-{workers}-{kind}")
            started[key] = Cluster(workers, 1, directory, kind=kind, env={} if on_cpu else ON_GPU)
        return started[key]

    yield start
    for cluster in started.values():
        cluster.close()
