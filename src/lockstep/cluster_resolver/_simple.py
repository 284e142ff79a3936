"""A resolver that says what it was told."""

from __future__ import annotations

from collections.abc import Mapping

from ._field import Field
from ._placement import check_alone, check_member
from ._resolver import ClusterResolver, check_text, with_rpc_layer
from ._spec import ClusterDict, ClusterSpec


class SimpleClusterResolver(ClusterResolver):
    """A resolver made from its answers; corresponds to `tf.distribute.cluster_resolver.SimpleClusterResolver`.

    Args:
        cluster_spec: The cluster: a `ClusterSpec`, or what one is made from.
        master: What `master()` returns where no task is asked for.
        task_type: The job of this process.
        task_id: The index of this process in its job.
        environment: What `environment` returns.
        num_accelerators: What `num_accelerators()` returns, such as {"GPU": 8}; default: {}.
        rpc_layer: What `master()` puts before "://".

    Raises:
        ClusterSpecError: The cluster breaks a rule, has no such task, or an argument is of the wrong type.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec | ClusterDict,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        self._cluster_spec = ClusterSpec(cluster_spec)
        self._master = check_text(Field("master", master))
        self._environment = check_text(Field("environment", environment))
        self._num_accelerators = dict(num_accelerators or {})
        self.task_type, self.task_id, self.rpc_layer = task_type, task_id, rpc_layer
        _check_task(self._cluster_spec, task_type, task_id)

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster that was given."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns the address of a task if both its type and its index are given, else the `master` that was."""
        address = self._master
        if task_type is not None and task_id is not None:
            address = self._cluster_spec.task_address(task_type, task_id)
        return with_rpc_layer(address, rpc_layer or self.rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Returns the numbers that were given, for every task."""
        del task_type, task_id, config_proto
        return dict(self._num_accelerators)

    @property
    def environment(self) -> str:
        """The environment that was given."""
        return self._environment


def _check_task(spec: ClusterSpec, task_type: str | None, task_id: int | None) -> None:
    fields = Field("task_type", task_type), Field("task_id", task_id)
    if not spec:
        check_alone(*fields)
    elif task_type is not None and task_id is not None:
        check_member(spec, *fields)
