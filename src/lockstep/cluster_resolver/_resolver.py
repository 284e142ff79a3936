"""The interface of all cluster resolvers, and the two that combine what they are given."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from lockstep.cluster_resolver._field import Field
from lockstep.cluster_resolver._roles import check_alone, check_member, unless_missing
from lockstep.cluster_resolver._spec import ClusterDict, ClusterSpec, Task, check_index, check_job

_TEXT_EXAMPLES = {"rpc_layer": "grpc", "environment": "cloud", "master": "host1:2222"}
Tasks: TypeAlias = list[str] | dict[int, str]


class ClusterResolver(abc.ABC):
    """Resolver of the tasks that make up the cluster, and of the one that this process is.

    Corresponds to `tf.distribute.cluster_resolver.ClusterResolver`. Subclasses define `cluster_spec` and `master`,
    and set `task_type`, `task_id` and `rpc_layer` where they know them; they need not call `__init__`.
    """

    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None

    @abc.abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster; an empty one means that this process trains alone."""

    @abc.abstractmethod
    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns the address of a task, as "host:port" or "rpc_layer://host:port"; '' for a process alone.

        Args:
            task_type: The job of the task; default: this process's own.
            task_id: The index of the task; default: this process's own.
            rpc_layer: What to put before "://"; default: the resolver's own, which may be nothing.

        Raises:
            ClusterSpecError: The cluster has no such task.
        """

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Returns how many accelerators a task has, by kind ("GPU", "TPU"); {} where there are only CPUs.

        A process can count only its own: the answer is {} when another task is asked for. Counting starts JAX's
        devices, after which a process can no longer join a cluster: call it once the strategy is made.

        Args:
            task_type: The job of the task; default: this process's own.
            task_id: The index of the task; default: this process's own.
            config_proto: Accepted for TensorFlow's sake and ignored.
        """
        del config_proto
        asked = (self.task_type if task_type is None else task_type, self.task_id if task_id is None else task_id)
        if asked != (self.task_type, self.task_id):
            return {}
        # Here, so that importing this package starts no backend.
        import jax

        platforms = [device.platform for device in jax.local_devices()]
        return dict(Counter(platform.upper() for platform in platforms if platform != "cpu"))

    @property
    def environment(self) -> str:
        """The environment that the process runs in; '' unless a resolver says otherwise."""
        return ""

    @property
    def task_type(self) -> str | None:
        """The job of this process, or `None` where the resolver cannot know it. Can be set."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = unless_missing(Field("task_type", task_type), check_job)

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job, or `None` where the resolver cannot know it. Can be set."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = unless_missing(Field("task_id", task_id), check_index)

    @property
    def rpc_layer(self) -> str | None:
        """The prefix that `master` puts before "://"; none if `None` or empty. Can be set; lockstep never uses it."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = unless_missing(Field("rpc_layer", rpc_layer), check_text)

    @property
    def task(self) -> Task | None:
        """The `Task` that this process is, or `None` unless both its type and its index are known."""
        if self.task_type is None or self.task_id is None:
            return None
        return Task(self.task_type, self.task_id)

    def _task_master(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """Returns what most resolvers mean by `master`: the address of the task asked for, else of this one."""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        # TensorFlow's answer too, where a resolver cannot know its task.
        if task_type is None or task_id is None:
            return ""
        address = self.cluster_spec().task_address(task_type, task_id)
        return with_rpc_layer(address, self.rpc_layer if rpc_layer is None else rpc_layer)


def check_text(field: Field) -> str:
    """Returns the string in `field`; raises `ClusterSpecError` if it is none."""
    if not isinstance(field.value, str):
        example = next((text for word, text in _TEXT_EXAMPLES.items() if word in field.name), "")
        raise field.error("must be a string", f'{field.name} = "{example}"')
    return field.value


def with_rpc_layer(address: str, rpc_layer: str | None) -> str:
    """Returns "rpc_layer://address", or the address alone where there is no RPC layer."""
    return f"{rpc_layer}://{address}" if rpc_layer else address


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
        fields = Field("task_type", task_type), Field("task_id", task_id)
        if not self._cluster_spec:
            check_alone(*fields)
        # TensorFlow's may leave either open, and have it set later.
        elif task_type is not None and task_id is not None:
            check_member(self._cluster_spec, *fields)

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
        self._resolvers = resolvers
        for index, resolver in enumerate(resolvers):
            if not isinstance(resolver, ClusterResolver):  # pyright: ignore[reportUnnecessaryIsInstance]
                field = Field("resolvers", resolver).item(index, resolver)
                raise field.error("must be a ClusterResolver", "TFConfigClusterResolver()")
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
        # Anew each time: pods come and go.
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
        """The prefix that `master` puts before "://": as given or set, else the first resolver's."""
        return self._resolvers[0].rpc_layer if self._rpc_layer is None else self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = unless_missing(Field("rpc_layer", rpc_layer), check_text)


def _merge(job: str, first: Tasks, second: Tasks) -> Tasks:
    if first == second:
        return first
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    # One list and one mapping, or two mappings: indices are known, so tasks cannot be renumbered to make room.
    ours, theirs = (tasks if isinstance(tasks, dict) else dict(enumerate(tasks)) for tasks in (first, second))
    clash = [index for index in ours.keys() & theirs.keys() if ours[index] != theirs[index]]
    if clash:
        field = Field("cluster", None).item(job, None).item(clash[0], (ours[clash[0]], theirs[clash[0]]))
        raise field.error("must be the same task in all resolvers", f'{{{clash[0]}: "{ours[clash[0]]}"}}')
    return ours | theirs
