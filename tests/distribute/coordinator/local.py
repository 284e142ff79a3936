"""Clusters of threads of this process, for tests: servers and workers that a coordinator connects to."""

from __future__ import annotations

from typing import Any

import lockstep as ls
from lockstep.cluster_resolver import SimpleClusterResolver
from lockstep.distribute.coordinator import ClusterCoordinator
from tests.support.ports import free_ports


def make_cluster(workers: int, servers: int) -> dict[str, list[str]]:
    """Starts workers and servers in this process; returns their cluster."""
    ports = iter(free_ports(workers + servers))
    counts = {"worker": workers, "ps": servers}
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in counts.items()}
    for job, count in counts.items():
        for index in range(count):
            ls.distribute.Server(cluster, job, index)
    return cluster


def make_coordinator(cluster: Any, partitioner: Any = None, **options: Any) -> ClusterCoordinator:
    """Returns a coordinator of a new strategy; servers forget what the one before has given them."""
    resolver = SimpleClusterResolver(cluster)
    return ClusterCoordinator(ls.distribute.ParameterServerStrategy(resolver, partitioner, **options))
