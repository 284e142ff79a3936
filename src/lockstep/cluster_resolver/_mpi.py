"""The resolver of Open MPI."""

from __future__ import annotations

import re

from ._address import check_address, check_port, join_address
from ._environ import check_number, check_rank, variable
from ._field import Field
from ._ranked import RankedClusterResolver

# "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911" or "...;tcp6://[fe80::1,2620::2]:43370"
_URI_HOST = re.compile(r"tcp6?://\[?([0-9A-Fa-f.:]+?)(?:,|\]|:[0-9]+(?:;|$))")


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
    if variable("OMPI_COMM_WORLD_LOCAL_SIZE").value == str(size):
        return "localhost"
    uri = _URI_HOST.search(str(variable("OMPI_MCA_orte_hnp_uri").value))
    if not uri:
        rule = "must be given where Open MPI does not tell the address of rank 0"
        raise coordinator.error(rule, 'MPIClusterResolver(coordinator_address="host1:8888")')
    return uri[1]
