"""The interface of all cluster resolvers."""

from __future__ import annotations

import abc
from collections import Counter

from ._field import Field
from ._placement import unless_missing
from ._spec import ClusterSpec
from ._task import Task, check_index, check_job

_TEXT_EXAMPLES = {"rpc_layer": "grpc", "environment": "cloud", "master": "host1:2222"}


class ClusterResolver(abc.ABC):
    """Says which tasks make up the cluster and which of them this process is.

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
        return _local_accelerators() if asked == (self.task_type, self.task_id) else {}

    @property
    def environment(self) -> str:
        """Where the process runs; '' unless a resolver says otherwise."""
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
        """What `master` puts before "://"; nothing if `None` or ''. Can be set; lockstep itself never uses it."""
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


def _local_accelerators() -> dict[str, int]:
    # Here, so that importing this package starts no backend.
    import jax

    platforms = [device.platform for device in jax.local_devices()]
    return dict(Counter(platform.upper() for platform in platforms if platform != "cpu"))
