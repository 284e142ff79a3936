"""Resolvers of torchrun and Open MPI, which tell a cluster's size, the own rank and the address of rank 0."""

from __future__ import annotations

import re

from lockstep.cluster_resolver._address import HIGHEST_PORT, check_address, check_port, join_address, unknown_address
from lockstep.cluster_resolver._field import Field, check_number, check_rank, check_set, variable
from lockstep.cluster_resolver._resolver import ClusterResolver
from lockstep.cluster_resolver._spec import ClusterSpec

# "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911" or "...;tcp6://[fe80::1,2620::2]:43370"
_URI_HOST = re.compile(r"tcp6?://\[?([0-9A-Fa-f.:]+?)(?:,|\]|:[0-9]+(?:;|$))")


class RankedClusterResolver(ClusterResolver):
    """A cluster of workers, numbered by rank, where only worker 0 has a known address.

    That is all that joining takes. The other workers' addresses are under ".invalid", as in
    "worker-3.address-unknown.invalid:1".
    """

    def __init__(self, coordinator: str, size: int, rank: int, rpc_layer: str | None) -> None:
        # ".invalid" never resolves, so a task that dials another worker fails at once and by name. All tasks hold the
        # same cluster, which they compare when they join.
        others = [unknown_address("worker", index) for index in range(1, size)]
        self._cluster_spec = ClusterSpec({"worker": [coordinator, *others]})
        self.task_type, self.task_id, self.rpc_layer = "worker", rank, rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster: as many workers as there are ranks."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns the address of a task, by default of worker 0, the only one that is known."""
        return self._task_master(task_type, 0 if task_id is None else task_id, rpc_layer)


class TorchrunClusterResolver(RankedClusterResolver):
    """Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun, Kubeflow and others set them.

    TensorFlow has no such resolver. All ranks are workers, and only worker 0 has a known address; the others' are
    stand-ins under ".address-unknown.invalid".

    Args:
        port: The port on which rank 0 coordinates; default: MASTER_PORT, or the one after it where torchrun's own
            agent listens on that (it says so in TORCHELASTIC_USE_AGENT_STORE).
        rpc_layer: What `master()` puts before "://".

    Raises:
        ClusterSpecError: A variable is missing or malformed, or the rank is not below the number of ranks.
    """

    def __init__(self, port: int | None = None, rpc_layer: str | None = "grpc") -> None:
        size = check_number(variable("WORLD_SIZE"), lowest=1)
        rank = check_rank(variable("RANK"), size, "WORLD_SIZE")
        # No default, as torch has none: a guess of localhost would make each node a cluster of its own.
        host = check_set(variable("MASTER_ADDR"), "host1")
        if port is not None:
            check_port(Field("port", port))
        else:
            port = check_port(Field("MASTER_PORT", check_number(variable("MASTER_PORT"), lowest=1)))
            # torchrun's own agent listens on MASTER_PORT then, for as long as its workers run.
            if variable("TORCHELASTIC_USE_AGENT_STORE").value == "True":
                port = port + 1 if port < HIGHEST_PORT else port - 1
        coordinator = check_address(Field("MASTER_ADDR with its port", join_address(host, port)))
        super().__init__(coordinator, size, rank, rpc_layer)


class MPIClusterResolver(RankedClusterResolver):
    """Reads the variables that Open MPI's `mpirun` sets: OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_SIZE.

    TensorFlow has no such resolver. All ranks are workers, and only worker 0 has a known address; the others' are
    stand-ins under ".address-unknown.invalid".

    Args:
        coordinator_address: The "host:port" of rank 0. Default: `port` on localhost where all ranks are on one node;
            else on the machine where `mpirun` runs, which Open MPI 4 tells, and on which rank 0 must then be.
        port: The port on which rank 0 coordinates if no address is given.
        rpc_layer: What `master()` puts before "://".

    Raises:
        ClusterSpecError: A variable is missing or malformed, the rank is not below the number of ranks, or nothing
            tells where rank 0 is.
    """

    def __init__(
        self, coordinator_address: str | None = None, port: int = 8888, rpc_layer: str | None = "grpc"
    ) -> None:
        size = check_number(variable("OMPI_COMM_WORLD_SIZE"), lowest=1)
        rank = check_rank(variable("OMPI_COMM_WORLD_RANK"), size, "OMPI_COMM_WORLD_SIZE")
        coordinator = Field("coordinator_address", coordinator_address)
        if coordinator_address is None:
            host = _coordinator_host(coordinator, size)
            coordinator = Field("coordinator_address", join_address(host, check_port(Field("port", port))))
        super().__init__(check_address(coordinator), size, rank, rpc_layer)


def _coordinator_host(coordinator: Field, size: int) -> str:
    # All ranks on one node. Else the host of mpirun, which Open MPI 4 puts into each rank's environment; 5 does not.
    if variable("OMPI_COMM_WORLD_LOCAL_SIZE").value == str(size):
        return "localhost"
    uri = _URI_HOST.search(str(variable("OMPI_MCA_orte_hnp_uri").value))
    if not uri:
        rule = "must be given where Open MPI does not tell the address of rank 0"
        raise coordinator.error(rule, 'MPIClusterResolver(coordinator_address="host1:8888")')
    return uri[1]
