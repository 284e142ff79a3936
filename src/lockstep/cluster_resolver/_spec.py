"""The cluster as a value: which tasks there are, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ._field import Field, listed
from ._jobs import Jobs, check_index_in, check_jobs, dense_or_sparse
from ._task import Task

ClusterDict: TypeAlias = Mapping[str, Sequence[str] | Mapping[int, str]]


@dataclass(frozen=True, init=False, repr=False)
class ClusterSpec:
    """The tasks that make up a cluster and their addresses; corresponds to `tf.train.ClusterSpec`.

    An immutable value: equal and of equal hash when jobs, indices and addresses are; false when it is empty.
    Every rule is checked when it is made, and no socket is opened: `host:port` must be well formed and used only
    once, a cluster has at most one chief (or "master", but not both) and one evaluator. A "ps" or "evaluator" job
    with no tasks is left out, since launchers write it for zero of them; any other empty job is an error.

    Args:
        cluster: A mapping from job ("chief", "master", "worker", "ps", "evaluator") to the addresses of its tasks: a
            list, or a mapping from index to address where only some tasks are known. Or another `ClusterSpec`.

    Raises:
        ClusterSpecError: A rule is broken; the message names the field, what it held, and a correct example.
    """

    _jobs: Jobs

    def __init__(self, cluster: ClusterDict | ClusterSpec) -> None:
        jobs = cluster._jobs if isinstance(cluster, ClusterSpec) else check_jobs(Field("cluster", cluster))
        object.__setattr__(self, "_jobs", jobs)

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Returns the addresses by job: a list where the indices run from 0 without a gap, else a dict."""
        return {job: dense_or_sparse(tasks) for job, tasks in self._jobs.items()}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, in the order in which they were given."""
        return list(self._jobs)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, sorted."""
        return tuple(sorted(Task(job, index) for job, tasks in self._jobs.items() for index in tasks))

    def num_tasks(self, job_name: str) -> int:
        """Returns how many tasks a job has; raises `ClusterSpecError` if there is no such job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns the indices of a job's tasks, ascending; raises `ClusterSpecError` if there is no such job."""
        return list(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Returns the address of one task.

        Raises:
            ClusterSpecError: The cluster has no such job, or the job no such index; the message lists what it has.
        """
        tasks = self._job(job_name)
        return tasks[check_index_in(tasks, job_name, Field("task_index", task_index))]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Returns a job's addresses by position, `None` where a sparse job has no task of that index.

        Raises:
            ClusterSpecError: The cluster has no such job.
        """
        tasks = self._job(job_name)
        return [tasks.get(index) for index in range(max(tasks) + 1)]

    def _job(self, name: str) -> dict[int, str]:
        job = self._jobs.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if job is None:
            rule = f"must be a job of this cluster, which are {listed(self.jobs)}"
            raise Field("job_name", name).error(rule, listed(self.jobs[:1] or ["worker"]))
        return job

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __hash__(self) -> int:
        return hash(frozenset((job, *tasks.items()) for job, tasks in self._jobs.items()))

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))})"
