"""What TF_CONFIG says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ._field import MISSING, Field
from ._jobs import check_jobs
from ._json import read_json
from ._placement import check_alone, check_member, unless_missing
from ._resolver import check_text
from ._spec import ClusterSpec

EXAMPLE = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'

_NAME = "TF_CONFIG"
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
        claimed_type = _member(task, "type") if task_type is None else Field("task_type", task_type)
        claimed_id = _member(task, "index") if task_id is None else Field("task_id", task_id)
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
    return TFConfig(_cluster(_member(Field(_NAME, values), "cluster")), values)


def _cluster(field: Field) -> ClusterSpec:
    if field.value is MISSING:
        return ClusterSpec({})
    if not isinstance(field.value, Mapping):
        raise field.error("must be an object that maps each job to its addresses", EXAMPLE)
    jobs = {job: _with_indices(tasks) for job, tasks in field.value.items()}
    return ClusterSpec(check_jobs(Field(field.name, jobs)))


def _with_indices(tasks: object) -> object:
    """Returns a sparse job with integers as keys, where JSON could only write strings."""
    if not isinstance(tasks, Mapping):
        return tasks
    return {int(key) if _INDEX_KEY.fullmatch(key) else key: address for key, address in tasks.items()}


def _member(field: Field, key: str) -> Field:
    members = field.value if isinstance(field.value, Mapping) else {}
    return field.item(key, members.get(key, MISSING))
