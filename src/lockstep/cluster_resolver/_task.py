"""Tasks: the processes of a cluster, each named by a job and an index."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, TypeGuard

from ._field import Field, listed

# In the order in which messages and sorted tasks list them.
JOBS: Final = ("chief", "master", "worker", "ps", "evaluator")
TRAINING_JOBS: Final = ("chief", "master", "worker")
# Far above any cluster, and low enough that a list with one entry per index is no danger to memory.
MOST_TASKS: Final = 100_000


@functools.total_ordering
@dataclass(frozen=True)
class Task:
    """One process of a cluster; sorts by job (chief, worker, ps, evaluator), then by index.

    Corresponds to the `task` entry of TF_CONFIG, and to the job and task of a `tf.DeviceSpec`.

    Args:
        type: The job: "chief", "master" (its name in TensorFlow 1), "worker", "ps" or "evaluator".
        index: The position in the job, from 0.

    Raises:
        ClusterSpecError: `type` is no known job, or `index` is not an integer from 0 to 99999.
    """

    type: str
    index: int

    def __post_init__(self) -> None:
        """Refuses a task that no cluster could have."""
        check_job(Field("Task.type", self.type))
        check_index(Field("Task.index", self.index))

    @property
    def label(self) -> str:
        """The name for people: "worker 1"."""
        return f"{self.type} {self.index}"

    @property
    def path(self) -> str:
        """The name as TensorFlow writes it in device strings: "/job:worker/task:1"."""
        return f"/job:{self.type}/task:{self.index}"

    def __str__(self) -> str:
        return self.label

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Task):
            return NotImplemented
        return (JOBS.index(self.type), self.index) < (JOBS.index(other.type), other.index)


def check_job(field: Field) -> str:
    """Returns the job named in `field`; raises `ClusterSpecError` unless it is one of the known ones."""
    if not isinstance(field.value, str) or field.value not in JOBS:
        raise field.error(f"must name one of the jobs {listed(list(JOBS))}", f'{field.name} = "worker"')
    return field.value


def check_index(field: Field) -> int:
    """Returns the task index in `field`; raises `ClusterSpecError` unless it is an integer from 0 to 99999."""
    if not is_index(field.value):
        rule = f"must be an integer from 0 to {MOST_TASKS - 1}, without quotes"
        raise field.error(rule, f"{field.name} = 0")
    return field.value


def is_index(value: object) -> TypeGuard[int]:
    """Tells whether `value` can be the index of a task."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TASKS
