"""Reads the role of this process, for `RunConfig`: from TF_CONFIG, a launcher's variables, or a strategy's cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.cluster_resolver import ClusterResolver, ClusterSpec, Task
from lockstep.cluster_resolver.internal import (
    MISSING,
    Field,
    TFConfig,
    check_index,
    check_index_in,
    check_job,
    chief_task,
    known_address,
    launcher_resolver,
    list_names,
    parse_tf_config,
    training_tasks,
)

_CHIEF_EXAMPLE = '{"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]}'
_TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}'
# TensorFlow calls int() on an index. At most 9 digits: no cluster is larger, and int() of a long text is slow.
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,9}\s*")


@dataclass(frozen=True)
class Role:
    """The properties of `RunConfig` that follow from the cluster, as it documents them."""

    cluster_spec: ClusterSpec
    task_type: str
    task_id: int
    is_chief: bool
    num_worker_replicas: int
    num_ps_replicas: int = 0
    global_id_in_cluster: int | None = None
    master: str = ""
    evaluation_master: str = ""
    service: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Environment:
    """The environment's description of the cluster: TF_CONFIG, or where it is not set the launcher's variables."""

    config: TFConfig
    launcher: ClusterResolver | None = None


def read_environment() -> Environment:
    """Returns the cluster role of TF_CONFIG, or of the launcher.

    Raises:
        ClusterSpecError: TF_CONFIG is malformed, or launchers contradict each other.
    """
    return Environment(parse_tf_config(os.environ.get("TF_CONFIG", "")), launcher_resolver(for_training=False))


def role_of(environment: Environment, resolver: ClusterResolver | None = None, in_strategy: bool = False) -> Role:
    """Returns the role of this process; raises `ClusterSpecError` if a rule that `RunConfig` documents is broken.

    The training strategy's resolver takes precedence over the environment, unless it is empty.
    """
    # TensorFlow fills the fields from an empty TF_CONFIG where a strategy is given, so that each task takes itself for
    # the chief, until its coordinator sets them.
    config = environment.config
    cluster = resolver.cluster_spec() if resolver else ClusterSpec({})
    own = resolver.task if resolver and cluster else None
    if not cluster and environment.launcher is not None:
        cluster, own = environment.launcher.cluster_spec(), environment.launcher.task
        _check_chief("the launcher's cluster", cluster, in_strategy)
    cluster = cluster or config.cluster
    if not cluster:
        return _alone(config)
    task = own or _task(config, cluster, in_strategy)
    if task.type == "evaluator":
        # An evaluator is not part of the cluster that trains: TensorFlow empties the cluster, too.
        return Role(
            cluster_spec=ClusterSpec({}),
            task_type=task.type,
            task_id=task.index,
            is_chief=False,
            num_worker_replicas=0,
            evaluation_master=config.text("eval_session_master") or "",
            service=_service(config),
        )
    # TensorFlow's precedence: the name in TF_CONFIG, then "" in a cluster of one task, then the task's address.
    named = config.text("session_master")
    address = None if len(cluster.tasks) == 1 else known_address(cluster, task)
    return Role(
        cluster_spec=cluster,
        task_type=task.type,
        task_id=task.index,
        is_chief=task == chief_task(cluster),
        num_worker_replicas=len(training_tasks(cluster)),
        num_ps_replicas=cluster.num_tasks("ps") if "ps" in cluster.jobs else 0,
        global_id_in_cluster=_global_id(cluster, task),
        master=f"grpc://{address}" if named is None and address is not None else named or "",
        service=_service(config),
    )


def _alone(config: TFConfig) -> Role:
    task = _members(config)
    task_type = Field(task.name + '["type"]', _values(task).get("type", "worker"))
    task_id = Field(task.name + '["index"]', _values(task).get("index", 0))
    if task_type.value != "worker":
        raise task_type.error('must be "worker", the default, where there is no cluster', _TASK_EXAMPLE)
    if _index(task_id).value != 0:
        raise task_id.error("must be 0, the default, where there is no cluster", _TASK_EXAMPLE)
    return Role(
        cluster_spec=ClusterSpec({}),
        task_type="worker",
        task_id=0,
        is_chief=True,
        num_worker_replicas=1,
        global_id_in_cluster=0,
        master=config.text("session_master") or "",
        evaluation_master=config.text("eval_session_master") or "",
        service=_service(config),
    )


def _check_chief(name: str, cluster: ClusterSpec, in_strategy: bool) -> str:
    """Returns the job of the chief; raises `ClusterSpecError` if there is none and no strategy that does without."""
    # TensorFlow has two rules: RunConfig demands a chief, and strategies take worker 0 for it where there is none.
    chief = "master" if "master" in cluster.jobs else "chief"
    if chief not in cluster.jobs and not in_strategy:
        rule = 'must have one "chief" where no strategy trains: give it one, or pass train_distribute to RunConfig'
        raise Field(name, cluster.as_dict()).error(rule, _CHIEF_EXAMPLE)
    return chief


def _task(config: TFConfig, cluster: ClusterSpec, in_strategy: bool) -> Task:
    chief = _check_chief('TF_CONFIG["cluster"]', cluster, in_strategy)
    task = _members(config)
    task_type, task_id = (task.item(key, _values(task).get(key, MISSING)) for key in ("type", "index"))
    job = check_job(task_type)
    if job == "evaluator":
        if chief == "master":
            rule = 'must not be "evaluator" in a cluster with a "master", which evaluates'
            raise task_type.error(rule, _CHIEF_EXAMPLE)
        # Any index from 0 up: evaluators are not listed in the cluster.
        return Task(job, check_index(_index(task_id)))
    if job not in cluster.jobs:
        rule = f'must be one of the jobs of the cluster, {list_names(cluster.jobs)}; or "evaluator"'
        raise task_type.error(rule, f'{task_type.name} = "{cluster.jobs[0]}"')
    return Task(job, check_index_in(dict.fromkeys(cluster.task_indices(job)), job, _index(task_id)))


def _members(config: TFConfig) -> Field:
    task = Field('TF_CONFIG["task"]', config.values.get("task", MISSING))
    if task.value is not MISSING and not isinstance(task.value, Mapping):
        raise task.error("must be an object with a type and an index", _TASK_EXAMPLE)
    return task


def _values(task: Field) -> Mapping[str, object]:
    return task.value if isinstance(task.value, Mapping) else {}


def _index(field: Field) -> Field:
    """Parses a task index, which may be text such as "0"."""
    if isinstance(field.value, str) and _INTEGER.fullmatch(field.value):
        return Field(field.name, int(field.value))
    return field


def _global_id(cluster: ClusterSpec, task: Task) -> int:
    """Returns the global id: chief first, then the other jobs in alphabetical order, and `ps` last."""
    # TensorFlow's _get_global_id_in_cluster.
    jobs = sorted(cluster.jobs, key=lambda job: (job not in ("chief", "master"), job == "ps", job))
    return sum(len(cluster.job_tasks(job)) for job in jobs[: jobs.index(task.type)]) + task.index


def _service(config: TFConfig) -> Mapping[str, object] | None:
    service = Field('TF_CONFIG["service"]', config.values.get("service"))
    if service.value is not None and not isinstance(service.value, Mapping):
        raise service.error("must be an object, or be left out", '"service": {"name": "training"}')
    return service.value
