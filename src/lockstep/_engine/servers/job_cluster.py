"""Facts of a cluster with parameter servers: its chief, the addresses that all agree on, tasks on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep._engine.runtime import addresses
from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.errors import ArgumentError


def chief_of(cluster: ClusterSpec) -> Task:
    """Returns the task that is the chief: of the job "chief" or "master", else the first worker."""
    for job in ("chief", "master", "worker"):
        if job in cluster.jobs:
            return Task(job, cluster.task_indices(job)[0])
    raise ArgumentError("A job with parameter servers needs a chief or a worker. Received: a cluster of neither.")


def agreed_of(cluster: ClusterSpec) -> dict[str, Any]:
    """Returns the addresses that all tasks must have been given alike."""
    chief = chief_of(cluster)
    servers = [cluster.task_address("ps", i) for i in cluster.task_indices("ps")]
    return {"chief": cluster.task_address(chief.type, chief.index), "ps": servers}


def tasks_beside(cluster: ClusterSpec, task: Task) -> int:
    """Returns how many tasks that train have this task's host in their addresses, this one included."""
    found = _addresses(cluster, ("evaluator",))
    return addresses.count_on_host(found.get(task), list(found.values()))


def place_beside(cluster: ClusterSpec, task: Task) -> tuple[int, int]:
    """Returns a task's number among those that compute gradients on its host, and how many these are."""
    found = _addresses(cluster, ("evaluator", "ps"))
    return addresses.place_on_host(found.get(task), list(found.values()))


def _addresses(cluster: ClusterSpec, without: Sequence[str]) -> dict[Task, str]:
    return {
        Task(job, index): cluster.task_address(job, index)
        for job in cluster.jobs
        if job not in without
        for index in cluster.task_indices(job)
    }
