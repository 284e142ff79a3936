"""Tasks, the rules that a cluster must keep, and the cluster as a value."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard

from lockstep.cluster_resolver._address import address_key, check_address
from lockstep.cluster_resolver._field import MOST_TASKS, Field, list_names, shown

# In the order in which messages and sorted tasks list them.
JOBS: Final = ("chief", "master", "worker", "ps", "evaluator")
TRAINING_JOBS: Final = ("chief", "master", "worker")

Jobs = dict[str, dict[int, str]]

_CLUSTER_EXAMPLE = '{"worker": ["host1:2222", "host2:2222"]}'
_TASKS_EXAMPLE = '["host1:2222", "host2:2222"]'
# TensorFlow's rule too (multi_worker_util).
_SINGLE_JOBS = ("chief", "master", "evaluator")
# A launcher asked for zero of them may write an empty list (Kubeflow with `replicas: 0`); nothing is lost by
# leaving them out, since they take no part in synchronous training. Without workers or chief there is none.
_JOBS_THAT_MAY_BE_EMPTY = ("ps", "evaluator")
ClusterDict: TypeAlias = Mapping[str, Sequence[str] | Mapping[int, str]]


@functools.total_ordering
@dataclass(frozen=True)
class Task:
    """A process of a cluster; sorts by job (chief, worker, ps, evaluator), then by index.

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
        raise field.error(f"must name one of the jobs {list_names(list(JOBS))}", f'{field.name} = "worker"')
    return field.value


def check_index(field: Field) -> int:
    """Returns the task index in `field`; raises `ClusterSpecError` unless it is an integer from 0 to 99999."""
    if not is_index(field.value):
        rule = f"must be an integer from 0 to {MOST_TASKS - 1}, without quotes"
        raise field.error(rule, f"{field.name} = 0")
    return field.value


def is_index(value: object) -> TypeGuard[int]:
    """Returns whether `value` can be the index of a task."""
    # bool is an int in Python: "index": true would be worker 1.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TASKS


def check_jobs(cluster: Field) -> Jobs:
    """Returns the addresses of `cluster` by job and index, or raises `ClusterSpecError` naming the field at fault."""
    if not isinstance(cluster.value, Mapping):
        raise cluster.error("must map each job to its addresses", _CLUSTER_EXAMPLE)
    jobs: Jobs = {}
    for name, tasks in cluster.value.items():
        if not isinstance(name, str) or name not in JOBS:
            rule = f"has a job that does not exist; the jobs are {list_names(list(JOBS))}"
            raise Field(cluster.name, name).error(rule, _CLUSTER_EXAMPLE)
        addresses = _tasks(cluster.item(name, tasks))
        if addresses:
            jobs[name] = addresses
        elif name not in _JOBS_THAT_MAY_BE_EMPTY:
            raise cluster.item(name, []).error("must have at least one task, or be left out", _TASKS_EXAMPLE)
    _check_single_jobs(cluster, jobs)
    _check_addresses_differ(cluster, jobs)
    return jobs


def check_index_in(tasks: Mapping[int, object], job: str, field: Field) -> int:
    """Returns the index in `field`; raises `ClusterSpecError` unless it is one of `tasks`, those of `job`."""
    if is_index(field.value) and field.value in tasks:
        return field.value
    indices = list(tasks)
    is_range = len(indices) > 1 and indices == list(range(len(indices)))
    where = f"0 to {len(indices) - 1}" if is_range else shown(indices).strip("[]")
    count = f"{len(indices)} task{'s' * (len(indices) > 1)}, index {where}"
    rule = f'must be an integer without quotes: job "{job}" has {count}'
    raise field.error(rule, f"{field.name} = {indices[0]}")


def dense_or_sparse(tasks: dict[int, str]) -> list[str] | dict[int, str]:
    """Returns a job as a list where its indices run from 0 without a gap, else as a dict."""
    return list(tasks.values()) if max(tasks) + 1 == len(tasks) else dict(tasks)


def _tasks(job: Field) -> dict[int, str]:
    if isinstance(job.value, Mapping):
        for index in job.value:
            if not is_index(index):
                rule = f"has an index that is no integer from 0 to {MOST_TASKS - 1}"
                raise Field(job.name, index).error(rule, '{1: "host1:2222"}; in JSON {"1": "host1:2222"}')
        entries = job.value
    elif isinstance(job.value, list | tuple):
        entries = dict(enumerate(job.value))
    else:
        raise job.error("must be a list of addresses, or a mapping from index to address", _TASKS_EXAMPLE)
    return {index: check_address(job.item(index, entries[index])) for index in sorted(entries)}


def _check_single_jobs(cluster: Field, jobs: Jobs) -> None:
    if "chief" in jobs and "master" in jobs:
        rule = 'must not have both "chief" and "master", which is the old name of the same job'
        raise cluster.error(rule, '{"chief": ["host0:2222"], "worker": ["host1:2222"]}')
    for name in _SINGLE_JOBS:
        if name in jobs and list(jobs[name]) != [0]:
            rule = f"must have one task, with index 0: a cluster has at most one {name}"
            raise cluster.item(name, dense_or_sparse(jobs[name])).error(rule, '["host0:2222"]')


def _check_addresses_differ(cluster: Field, jobs: Jobs) -> None:
    first_use: dict[tuple[str, int], str] = {}
    for name, tasks in jobs.items():
        for index, address in tasks.items():
            place = cluster.item(name, tasks).item(index, address)
            # Two tasks at one address both start, and one of them then waits for a port for ever.
            first = first_use.setdefault(address_key(address), place.name)
            if first != place.name:
                rule = f"must differ from {first}: no two tasks may share an address"
                raise place.error(rule, _TASKS_EXAMPLE)


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
        # Frozen, so that a cluster can be a key, and that nobody changes what tasks have compared.
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
            rule = f"must be a job of this cluster, which are {list_names(self.jobs)}"
            raise Field("job_name", name).error(rule, list_names(self.jobs[:1] or ["worker"]))
        return job

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __hash__(self) -> int:
        return hash(frozenset((job, *tasks.items()) for job, tasks in self._jobs.items()))

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))})"
