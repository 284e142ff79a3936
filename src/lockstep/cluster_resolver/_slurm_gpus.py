"""The GPUs of a Slurm node, dealt out to the tasks on it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from ._environ import variable
from ._field import MISSING, Field

_VISIBLE = "CUDA_VISIBLE_DEVICES"
# What was visible before this module narrowed it: a second resolver, or a child process, must not narrow it again.
_NODE_GPUS = "LOCKSTEP_SLURM_NODE_GPUS"
_NOT_DEVICES = ("", "-1", "NoDevFiles")  # Slurm writes the last where a job has no GPUs.
_QUERY_SECONDS = 30


@dataclass(frozen=True)
class GpuPlan:
    """Which GPUs each task of a node gets.

    Attributes:
        ids: The GPUs of the node, as CUDA_VISIBLE_DEVICES names them.
        per_task: How many each task gets; `None` leaves all to each task, and CUDA_VISIBLE_DEVICES as it is.
    """

    ids: tuple[str, ...]
    per_task: int | None

    def bind(self, local_rank: int) -> None:
        """Makes only the GPUs of one task visible to this process and its children."""
        if self.per_task is None or not self.ids:
            return
        before = ",".join(self.ids)
        mine = ",".join(self.ids[local_rank * self.per_task : (local_rank + 1) * self.per_task])
        os.environ[_NODE_GPUS], os.environ[_VISIBLE] = f"{mine}|{before}", mine

    def count(self) -> int:
        """Returns the number of GPUs that a task has."""
        return len(self.ids) if self.per_task is None else self.per_task


def plan_gpus(tasks_on_node: int, gpus_per_node: int | None, gpus_per_task: int | None) -> GpuPlan:
    """Returns who gets which GPUs of a node.

    Args:
        tasks_on_node: The greatest number of tasks on one node.
        gpus_per_node: Default: those in CUDA_VISIBLE_DEVICES, else as many as nvidia-smi lists.
        gpus_per_task: Default: all of them, divided evenly. Where Slurm itself gave each task its own
            (`--gpus-per-task`), nothing is divided again.

    Raises:
        ClusterSpecError: The tasks of one node ask for more GPUs than it has.
    """
    ids = _node_gpus(gpus_per_node)
    if gpus_per_task is None:
        bound_by_slurm = gpus_per_node is None and variable("SLURM_GPUS_PER_TASK").value is not MISSING
        return GpuPlan(ids, None if bound_by_slurm else len(ids) // tasks_on_node or None)
    if gpus_per_task * tasks_on_node > len(ids):
        rule = f"must not ask for more than a node's GPUs, which are {len(ids)} for {tasks_on_node} tasks"
        raise Field("gpus_per_task", gpus_per_task).error(rule, len(ids) // tasks_on_node)
    return GpuPlan(ids, gpus_per_task)


def _node_gpus(count: int | None) -> tuple[str, ...]:
    visible = _visible_gpus()
    if visible is not None and (count is None or len(visible) >= count):
        return visible if count is None else visible[:count]
    return tuple(str(index) for index in range(_installed_gpus() if count is None else count))


def _visible_gpus() -> tuple[str, ...] | None:
    visible = os.environ.get(_VISIBLE)
    narrowed, _, before = os.environ.get(_NODE_GPUS, "").partition("|")
    if visible is not None and before and visible == narrowed:
        visible = before
    if visible is None:
        return None
    return tuple(each.strip() for each in visible.split(",") if each.strip() not in _NOT_DEVICES)


def _installed_gpus() -> int:
    try:
        listing = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0  # A node without GPUs has no nvidia-smi, or one that fails for want of a driver.
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
