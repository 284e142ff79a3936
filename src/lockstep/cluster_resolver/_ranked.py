"""Clusters of which a launcher tells the size, the own rank, and one address: that of rank 0."""

from __future__ import annotations

from ._address import unknown_address
from ._resolver import ClusterResolver
from ._spec import ClusterSpec


class RankedClusterResolver(ClusterResolver):
    """A cluster of workers, numbered by rank, where only worker 0 has a known address.

    That is all that joining takes. The other workers listen nowhere that anyone was told, and the cluster says so
    instead of inventing addresses: theirs are under ".invalid", a name reserved for what must never resolve, as in
    "worker-3.address-unknown.invalid:1". All tasks so hold the same cluster, which they compare when they join.

    Args:
        coordinator: The address of rank 0.
        size: The number of ranks.
        rank: The rank of this process.
        rpc_layer: What `master()` puts before "://".
    """

    def __init__(self, coordinator: str, size: int, rank: int, rpc_layer: str | None) -> None:
        others = [unknown_address("worker", index) for index in range(1, size)]
        self._cluster_spec = ClusterSpec({"worker": [coordinator, *others]})
        self.task_type, self.task_id, self.rpc_layer = "worker", rank, rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster: as many workers as there are ranks."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns the address of a task, by default of worker 0, the only one that is known."""
        chosen_id = 0 if task_id is None else task_id
        return self._task_master(task_type, chosen_id, rpc_layer)
