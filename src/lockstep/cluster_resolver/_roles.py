"""Membership and roles of a task in a cluster: chief, member of the mesh, process number.

Follows `tensorflow/python/distribute/multi_worker_util.py`, with these differences, which only concern clusters that
TensorFlow cannot train on: a sparse worker job numbers its tasks by position, so that processes count from 0 without a
gap, and its first task is the chief where there is no other; a "master" is a chief.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lockstep.cluster_resolver._address import is_unknown
from lockstep.cluster_resolver._field import MISSING, Field, list_names
from lockstep.cluster_resolver._spec import (
    TRAINING_JOBS,
    ClusterDict,
    ClusterSpec,
    Task,
    check_index,
    check_index_in,
    check_job,
)

_T = TypeVar("_T")


def check_member(spec: ClusterSpec, task_type: Field, task_id: Field) -> Task:
    """Returns the task of `spec` that two fields name.

    Raises:
        ClusterSpecError: A field is missing or malformed, or the cluster has no such task.
    """
    job = check_job(task_type)
    if job in spec.jobs:
        return Task(job, check_index_in(dict.fromkeys(spec.task_indices(job)), job, task_id))
    # An evaluator need not stand in the cluster: it trains with nobody, and Kubeflow leaves it out.
    if job == "evaluator":
        return Task(job, check_index(task_id))
    rule = f'must be one of the jobs of the cluster, {list_names(spec.jobs)}; or "evaluator"'
    raise task_type.error(rule, f'{task_type.name} = "{spec.jobs[0]}"')


def check_alone(task_type: Field, task_id: Field) -> tuple[str | None, int | None]:
    """Returns the task type and index of a process without a cluster, `None` for what is missing."""
    job = unless_missing(task_type, check_job)
    index = unless_missing(task_id, check_index)
    # Such a task needs a cluster, so TF_CONFIG has lost its own: training alone would hide that.
    if job == "ps":
        raise task_type.error(
            "must not be a parameter server where there is no cluster", f'{task_type.name} = "worker"'
        )
    if index and job != "evaluator":
        raise task_id.error("must be 0 where there is no cluster", f"{task_id.name} = 0")
    return job, index


def unless_missing(field: Field, check: Callable[[Field], _T]) -> _T | None:
    """Returns `check(field)`, `None` where the field is missing."""
    return None if field.value is MISSING or field.value is None else check(field)


def training_tasks(spec: ClusterSpec) -> tuple[Task, ...]:
    """Returns the tasks of the synchronous mesh by process number: the chief, then the workers by index."""
    return tuple(task for task in spec.tasks if task.type in TRAINING_JOBS)


def chief_task(spec: ClusterSpec) -> Task | None:
    """Returns the task that writes: the chief (or master), else the first worker; `None` if there is neither."""
    return next(iter(training_tasks(spec)), None)


def is_chief(spec: ClusterSpec | ClusterDict, task_type: str | None, task_id: int | None) -> bool:
    """Returns whether a task is the chief; an evaluator is its own, and so is the one task of an empty cluster.

    Raises:
        ClusterSpecError: The cluster has no such task.
    """
    spec = ClusterSpec(spec)
    # A process alone does what a chief does.
    if not spec:
        return True
    task = _member(spec, task_type, task_id)
    return task.type == "evaluator" or task == chief_task(spec)


def worker_count(spec: ClusterSpec | ClusterDict, task_type: str | None) -> int:
    """Returns how many tasks train together with one of `task_type`: 1 for an evaluator or an empty cluster.

    Raises:
        ClusterSpecError: `task_type` is no job of the cluster, or takes no part in training.
    """
    spec = ClusterSpec(spec)
    if not spec or task_type == "evaluator":
        return 1
    if task_type not in TRAINING_JOBS or task_type not in spec.jobs:
        raise Field("task_type", task_type).error("must be a job of this cluster that trains", '"worker"')
    return len(training_tasks(spec))


def id_in_cluster(spec: ClusterSpec | ClusterDict, task_type: str | None, task_id: int | None) -> int:
    """Returns the process number of a task, from 0 up to but without `worker_count`; 0 for an empty cluster.

    An evaluator, which is not among the processes that train, has its own index.

    Raises:
        ClusterSpecError: The cluster has no such task, or it takes no part in training.
    """
    spec = ClusterSpec(spec)
    if not spec:
        return 0
    task = _member(spec, task_type, task_id)
    if task.type == "evaluator":
        return task.index
    if task.type not in TRAINING_JOBS:
        raise Field("task_type", task_type).error("must be a job that trains to have a process number", '"worker"')
    return training_tasks(spec).index(task)


def known_address(spec: ClusterSpec, task: Task) -> str | None:
    """Returns the address of a task, `None` where its launcher did not tell it (torchrun, MPI)."""
    address = spec.task_address(task.type, task.index)
    return None if is_unknown(address) else address


def _member(spec: ClusterSpec, task_type: str | None, task_id: int | None) -> Task:
    return check_member(spec, Field("task_type", task_type), Field("task_id", task_id))
