"""Several resolvers as one."""

from __future__ import annotations

from typing import TypeAlias

from ._field import Field
from ._placement import unless_missing
from ._resolver import ClusterResolver, check_text, with_rpc_layer
from ._spec import ClusterSpec
from ._task import check_index, check_job

Tasks: TypeAlias = list[str] | dict[int, str]


class UnionResolver(ClusterResolver):
    """Merges the clusters of several resolvers; corresponds to `tf.distribute.cluster_resolver.UnionResolver`.

    The task, RPC layer, environment, accelerators and default `master` are those of the first resolver.

    Args:
        *resolvers: The resolvers to merge, at least one.
        rpc_layer: Takes the place of the first resolver's.
        task_type: Takes the place of the first resolver's.
        task_id: Takes the place of the first resolver's.

    Raises:
        ClusterSpecError: There is no resolver, one is of the wrong type, or an argument is malformed.
    """

    def __init__(
        self,
        *resolvers: ClusterResolver,
        rpc_layer: str | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        self._resolvers = tuple(_check_resolver(index, each) for index, each in enumerate(resolvers))
        if not resolvers:
            raise Field("resolvers", resolvers).error("must be at least one", "UnionResolver(first, second)")
        self.task_type, self.task_id, self.rpc_layer = task_type, task_id, rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Returns the union of all clusters, asking each resolver anew.

        The tasks of a job that several resolvers know as lists follow one another in the order of the resolvers. Where
        one of them is sparse, all count as sparse and indices stay as they are. A job that two resolvers describe
        alike counts once.

        Raises:
            ClusterSpecError: Two resolvers put different tasks at one index, or the union breaks a rule.
        """
        merged: dict[str, Tasks] = {}
        for resolver in self._resolvers:
            for job, tasks in resolver.cluster_spec().as_dict().items():
                merged[job] = _merge(job, merged[job], tasks) if job in merged else tasks
        return ClusterSpec(merged)

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns the address of a task if both its type and its index are given, else the first resolver's master."""
        if task_type is None or task_id is None:
            return self._resolvers[0].master(rpc_layer=rpc_layer or self._rpc_layer)
        return with_rpc_layer(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self.rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Returns what the first resolver says."""
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)

    @property
    def environment(self) -> str:
        """The first resolver's environment."""
        return self._resolvers[0].environment

    @property
    def task_type(self) -> str | None:
        """The job of this process: as given or set, else the first resolver's."""
        return self._resolvers[0].task_type if self._task_type is None else self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = unless_missing(Field("task_type", task_type), check_job)

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job: as given or set, else the first resolver's."""
        return self._resolvers[0].task_id if self._task_id is None else self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = unless_missing(Field("task_id", task_id), check_index)

    @property
    def rpc_layer(self) -> str | None:
        """What `master` puts before "://": as given or set, else the first resolver's."""
        return self._resolvers[0].rpc_layer if self._rpc_layer is None else self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = unless_missing(Field("rpc_layer", rpc_layer), check_text)


def _check_resolver(index: int, resolver: object) -> ClusterResolver:
    if not isinstance(resolver, ClusterResolver):
        field = Field("resolvers", resolver).item(index, resolver)
        raise field.error("must be a ClusterResolver", "TFConfigClusterResolver()")
    return resolver


def _merge(job: str, first: Tasks, second: Tasks) -> Tasks:
    if first == second:
        return first
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    ours, theirs = _sparse(first), _sparse(second)
    clash = [index for index in ours.keys() & theirs.keys() if ours[index] != theirs[index]]
    if clash:
        field = Field("cluster", None).item(job, None).item(clash[0], (ours[clash[0]], theirs[clash[0]]))
        raise field.error("must be the same task in all resolvers", f'{{{clash[0]}: "{ours[clash[0]]}"}}')
    return ours | theirs


def _sparse(tasks: Tasks) -> dict[int, str]:
    return tasks if isinstance(tasks, dict) else dict(enumerate(tasks))
