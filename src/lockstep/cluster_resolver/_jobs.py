"""The tasks of each job, out of what a user wrote: every rule that a cluster must keep."""

from __future__ import annotations

from collections.abc import Mapping

from ._address import check_address, same_place
from ._field import Field, listed, shown
from ._task import JOBS, MOST_TASKS, is_index

Jobs = dict[str, dict[int, str]]

_CLUSTER_EXAMPLE = '{"worker": ["host1:2222", "host2:2222"]}'
_TASKS_EXAMPLE = '["host1:2222", "host2:2222"]'
_SINGLE_JOBS = ("chief", "master", "evaluator")
# A launcher asked for zero of them may write an empty list (Kubeflow with `replicas: 0`); nothing is lost by
# leaving them out, since they take no part in synchronous training. Without workers or chief there is none.
_JOBS_THAT_MAY_BE_EMPTY = ("ps", "evaluator")


def check_jobs(cluster: Field) -> Jobs:
    """Returns the addresses of `cluster` by job and index, without jobs that are legally empty.

    Args:
        cluster: A mapping from job to a list of addresses, or to a mapping from index to address.

    Raises:
        ClusterSpecError: A rule is broken; the message names the field inside `cluster`.
    """
    if not isinstance(cluster.value, Mapping):
        raise cluster.error("must map each job to its addresses", _CLUSTER_EXAMPLE)
    jobs = {_job_name(cluster, name): _tasks(cluster.item(name, tasks)) for name, tasks in cluster.value.items()}
    jobs = {name: tasks for name, tasks in jobs.items() if not _may_leave_out(cluster, name, tasks)}
    _check_single_jobs(cluster, jobs)
    _check_addresses_differ(cluster, jobs)
    return jobs


def check_index_in(tasks: Mapping[int, object], job: str, field: Field) -> int:
    """Returns the index in `field`; raises `ClusterSpecError` unless it is one of `tasks`, those of `job`."""
    if not is_index(field.value) or field.value not in tasks:
        rule = f'must be an integer without quotes: job "{job}" has {_counted(tasks)}'
        raise field.error(rule, f"{field.name} = {next(iter(tasks))}")
    return field.value


def dense_or_sparse(tasks: dict[int, str]) -> list[str] | dict[int, str]:
    """Returns a job as a list where its indices run from 0 without a gap, else as a dict."""
    return list(tasks.values()) if max(tasks) + 1 == len(tasks) else dict(tasks)


def _counted(tasks: Mapping[int, object]) -> str:
    indices = list(tasks)
    dense = indices == list(range(len(indices)))
    where = f"index 0 to {len(indices) - 1}" if dense and len(indices) > 1 else f"index {shown(indices).strip('[]')}"
    return f"{len(indices)} task{'s' * (len(indices) > 1)}, {where}"


def _job_name(cluster: Field, name: object) -> str:
    if not isinstance(name, str) or name not in JOBS:
        rule = f"has a job that does not exist; the jobs are {listed(list(JOBS))}"
        raise Field(cluster.name, name).error(rule, _CLUSTER_EXAMPLE)
    return name


def _tasks(job: Field) -> dict[int, str]:
    if isinstance(job.value, Mapping):
        entries = {_sparse_index(job, index): address for index, address in job.value.items()}
    elif isinstance(job.value, list | tuple):
        entries = dict(enumerate(job.value))
    else:
        raise job.error("must be a list of addresses, or a mapping from index to address", _TASKS_EXAMPLE)
    return {index: check_address(job.item(index, entries[index])) for index in sorted(entries)}


def _sparse_index(job: Field, index: object) -> int:
    if not is_index(index):
        rule = f"has an index that is no integer from 0 to {MOST_TASKS - 1}"
        raise Field(job.name, index).error(rule, '{1: "host1:2222"}; in JSON {"1": "host1:2222"}')
    return index


def _may_leave_out(cluster: Field, name: str, tasks: dict[int, str]) -> bool:
    if not tasks and name not in _JOBS_THAT_MAY_BE_EMPTY:
        raise cluster.item(name, []).error("must have at least one task, or be left out", _TASKS_EXAMPLE)
    return not tasks


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
            first = first_use.setdefault(same_place(address), place.name)
            if first != place.name:
                rule = f"must differ from {first}: no two tasks may share an address"
                raise place.error(rule, _TASKS_EXAMPLE)
