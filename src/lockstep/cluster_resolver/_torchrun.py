"""The resolver of torchrun, and of every launcher that sets the same variables."""

from __future__ import annotations

from ._address import HIGHEST_PORT, check_address, check_port, join_address
from ._environ import check_number, check_rank, check_set, variable
from ._field import Field
from ._ranked import RankedClusterResolver


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
        host = check_set(variable("MASTER_ADDR"), "host1")
        chosen = _default_port() if port is None else check_port(Field("port", port))
        coordinator = check_address(Field("MASTER_ADDR with its port", join_address(host, chosen)))
        super().__init__(coordinator, size, rank, rpc_layer)


def _default_port() -> int:
    port = check_port(Field("MASTER_PORT", check_number(variable("MASTER_PORT"), lowest=1)))
    if variable("TORCHELASTIC_USE_AGENT_STORE").value != "True":
        return port
    return port + 1 if port < HIGHEST_PORT else port - 1
