"""TF_CONFIG: its parser and its resolver."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.cluster_resolver._field import MISSING, Field, read_json
from lockstep.cluster_resolver._resolver import ClusterResolver, check_text
from lockstep.cluster_resolver._roles import check_alone, check_member, unless_missing
from lockstep.cluster_resolver._spec import ClusterSpec, check_jobs

EXAMPLE = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'

_NAME = "TF_CONFIG"
# No more digits than an index can have.
_INDEX = re.compile("[0-9]{1,5}")
_TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}'
_INDEX_KEY = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class TFConfig:
    """A TF_CONFIG whose cluster and texts have been checked; which task it names depends on who overrides it.

    Attributes:
        cluster: The cluster, empty where TF_CONFIG names none.
        values: Everything in TF_CONFIG, as JSON has it.
    """

    cluster: ClusterSpec
    values: Mapping[str, object]

    def text(self, key: str) -> str | None:
        """Returns a text in TF_CONFIG, such as "rpc_layer"; `None` where it is missing or null.

        Raises:
            ClusterSpecError: It is something else.
        """
        return unless_missing(_member(Field(_NAME, self.values), key), check_text)

    def task(self, task_type: object = None, task_id: object = None) -> tuple[str | None, int | None]:
        """Returns the type and the index of the task that TF_CONFIG names, or that the arguments put in its place.

        Without a cluster, either is `None` if it is missing.

        Raises:
            ClusterSpecError: The task is missing, malformed, or not in the cluster.
        """
        task = _member(Field(_NAME, self.values), "task")
        if task.value is not MISSING and not isinstance(task.value, Mapping):
            raise task.error("must be an object with a type and an index", _TASK_EXAMPLE)
        # Arguments take the place of either, as in TensorFlow; a program so tests another task's view.
        claimed_type = _member(task, "type") if task_type is None else Field("task_type", task_type)
        claimed_id = _member(task, "index") if task_id is None else Field("task_id", task_id)
        # Scripts that write TF_CONFIG from variables of the shell put the index into quotes, which TensorFlow takes.
        if task_id is None and isinstance(claimed_id.value, str) and _INDEX.fullmatch(claimed_id.value):
            claimed_id = Field(claimed_id.name, int(claimed_id.value))
        if not self.cluster:
            return check_alone(claimed_type, claimed_id)
        found = check_member(self.cluster, claimed_type, claimed_id)
        return found.type, found.index


def parse_tf_config(text: object) -> TFConfig:
    """Returns what the text of TF_CONFIG says; an empty text says nothing.

    Raises:
        ClusterSpecError: It is not a JSON object, or its cluster breaks a rule of `ClusterSpec`.
    """
    empty = isinstance(text, str) and not text.strip()
    values = {} if empty else read_json(Field(_NAME, text), EXAMPLE)
    if not isinstance(values, dict):
        raise Field(_NAME, values).error("must be a JSON object", EXAMPLE)
    cluster = _member(Field(_NAME, values), "cluster")
    if cluster.value is MISSING:
        return TFConfig(ClusterSpec({}), values)
    if not isinstance(cluster.value, Mapping):
        raise cluster.error("must be an object that maps each job to its addresses", EXAMPLE)
    # A sparse job has integers as keys, and JSON can only write strings.
    jobs = {
        job: {int(key) if _INDEX_KEY.fullmatch(key) else key: address for key, address in tasks.items()}
        if isinstance(tasks, Mapping)
        else tasks
        for job, tasks in cluster.value.items()
    }
    return TFConfig(ClusterSpec(check_jobs(Field(cluster.name, jobs))), values)


def _member(field: Field, key: str) -> Field:
    members = field.value if isinstance(field.value, Mapping) else {}
    return field.item(key, members.get(key, MISSING))


class TFConfigClusterResolver(ClusterResolver):
    """Reads the cluster from TF_CONFIG; corresponds to `tf.distribute.cluster_resolver.TFConfigClusterResolver`.

    TF_CONFIG is read and checked once, when the resolver is made. Without TF_CONFIG, or with an empty one, the cluster
    is empty: this process trains alone. A cluster needs a task, whose index is a JSON integer; an evaluator need not
    stand in the cluster.

    Args:
        task_type: Takes the place of TF_CONFIG's.
        task_id: Takes the place of TF_CONFIG's.
        rpc_layer: Takes the place of TF_CONFIG's "rpc_layer".
        environment: Takes the place of TF_CONFIG's "environment".

    Raises:
        ClusterSpecError: TF_CONFIG breaks a rule; the message names the field, what it held, and a correct example.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        config = parse_tf_config(os.environ.get("TF_CONFIG", ""))
        self._cluster_spec = config.cluster
        self._task_type, self._task_id = config.task(task_type, task_id)
        self._session_master = config.text("session_master")
        own_rpc_layer = unless_missing(Field("rpc_layer", rpc_layer), check_text)
        own_environment = unless_missing(Field("environment", environment), check_text)
        named_rpc_layer, named_environment = config.text("rpc_layer"), config.text("environment")
        self._rpc_layer = named_rpc_layer if own_rpc_layer is None else own_rpc_layer
        self._environment = (named_environment if own_environment is None else own_environment) or ""

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster that TF_CONFIG names, empty if it names none."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns TF_CONFIG's "session_master" if it has one, else the address of a task.

        It is '' where no other task exists to talk to: the cluster is empty or has one task, or the task is an
        evaluator that stands outside it.
        """
        # TensorFlow's order: "session_master" wins over everything asked for.
        if self._session_master is not None:
            return self._session_master
        asked_type = self.task_type if task_type is None else task_type
        outside = asked_type == "evaluator" and "evaluator" not in self._cluster_spec.jobs
        if len(self._cluster_spec.tasks) <= 1 or outside:
            return ""
        return self._task_master(task_type, task_id, rpc_layer)

    @property
    def environment(self) -> str:
        """The constructor's environment, else TF_CONFIG's; '' if neither has one."""
        return self._environment
