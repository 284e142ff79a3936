"""Clusters of real processes that tests share.

Starting JAX in a process takes seconds, so the processes of a cluster are started once and asked to run one case after
another. The cluster is the one of `lockstep.testing`; each process makes one strategy for all cases.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pytest

from lockstep.testing import LocalCluster, Run
from tests.support import member
from tests.support.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
# Hides packages of development that Keras imports wherever they are: 0.5 s of the 2.7 in which a process starts.
LEAN = Path(__file__).with_name("lean")
# A case compiles its programs on every process of the cluster, on as few as two cores.
CASE_SECONDS = 240.0
# For tasks that share one GPU: none takes all of its memory, and products are not rounded to TensorFloat-32.
ON_GPU = {
    "JAX_PLATFORMS": "cuda,cpu",
    "JAX_DEFAULT_MATMUL_PRECISION": "highest",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "NCCL_SOCKET_IFNAME": "lo",
}


def tf_configs(workers: int, **more: Any) -> list[str]:
    """Returns TF_CONFIG for each of `workers` tasks on this machine."""
    cluster = {"worker": [f"127.0.0.1:{p}" for p in free_ports(workers)]}
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}, **more}) for i in range(workers)]


def environment(devices: int = 1, *, has_packages: bool = False, **more: str) -> dict[str, str]:
    """Returns this process' environment, for a task with so many virtual CPU devices.

    Args:
        devices: Number of devices.
        has_packages: Whether it finds the packages of `LEAN`, too.
        **more: More variables.
    """
    path = os.pathsep.join([*([] if has_packages else [str(LEAN)]), str(ROOT / "src"), str(ROOT)])
    own = {"JAX_NUM_CPU_DEVICES": str(devices)} if devices > 1 else {}
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **own, **more}


class Cluster:
    """Processes that run cases together.

    Args:
        workers: Number of processes; 0 for one process with plain Keras and no strategy.
        devices: Virtual CPU devices of each.
        directory: For logs and results.
        source: The folder that holds the package `lockstep`.
        kind: The strategy, a key of `member.STRATEGIES`; by default the one for so many workers.
        env: Variables of the tasks, such as those of `ON_GPU`.

    Attributes:
        tasks: The processes.
    """

    def __init__(
        self,
        workers: int,
        devices: int,
        directory: Path,
        source: Path = ROOT / "src",
        kind: str = "",
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        own = {"PYTHONPATH": os.pathsep.join([str(LEAN), str(source), str(ROOT)]), **env}
        count = max(workers, 1)
        self.tasks = LocalCluster(
            count, devices=devices, env=own, timeout=CASE_SECONDS, directory=directory, reuse=True
        )
        self._kind = kind or ("plain" if workers == 0 else "multi" if workers > 1 else "mirrored")

    def run(self, case: str, /, **arguments: Any) -> list[dict[str, np.ndarray]]:
        """Runs `module:function` with the strategy and `arguments` on every process; returns each one's arrays."""
        return self.start(case, **arguments).results()

    def start(self, case: str, /, **arguments: Any) -> Run:
        """Starts `module:function` with the strategy and `arguments` on every process, and does not wait."""
        return self.tasks.start(member.run, self._kind, case, arguments)

    def close(self) -> None:
        """Lets the processes end in order, and reports one that does not."""
        self.tasks.close()


def shared(workers: int, devices: int = 1, scope: Literal["module", "package"] = "module") -> Any:
    """Returns a fixture: a cluster that tests share, such as `pair = cluster.shared(2)`."""

    @pytest.fixture(scope=scope)
    def started(tmp_path_factory: pytest.TempPathFactory, cluster_mark: None) -> Iterator[Cluster]:
        cluster = Cluster(workers, devices, tmp_path_factory.mktemp(f"cluster-{workers}x{devices}"))
        yield cluster
        cluster.close()

    return started
