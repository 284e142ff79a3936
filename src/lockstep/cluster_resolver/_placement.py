"""Whether a task can belong to a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ._field import MISSING, Field, listed
from ._jobs import check_index_in
from ._spec import ClusterSpec
from ._task import Task, check_index, check_job

_T = TypeVar("_T")


def check_member(spec: ClusterSpec, task_type: Field, task_id: Field) -> Task:
    """Returns the task of `spec` that two fields name.

    An evaluator need not stand in the cluster: it trains with nobody, and Kubeflow leaves it out.

    Raises:
        ClusterSpecError: A field is missing or malformed, or the cluster has no such task.
    """
    job = check_job(task_type)
    if job in spec.jobs:
        return Task(job, check_index_in(dict.fromkeys(spec.task_indices(job)), job, task_id))
    if job == "evaluator":
        return Task(job, check_index(task_id))
    rule = f'must be one of the jobs of the cluster, {listed(spec.jobs)}; or "evaluator"'
    raise task_type.error(rule, f'{task_type.name} = "{spec.jobs[0]}"')


def check_alone(task_type: Field, task_id: Field) -> tuple[str | None, int | None]:
    """Returns the task type and index of a process without a cluster, `None` for what is missing.

    Raises:
        ClusterSpecError: A field is malformed, or names a task that needs a cluster: that cluster was lost.
    """
    job = unless_missing(task_type, check_job)
    index = unless_missing(task_id, check_index)
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
