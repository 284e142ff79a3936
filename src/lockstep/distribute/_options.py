"""How gradients travel between workers."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._step.reduction import Reduction


class CommunicationImplementation(enum.Enum):
    """Which collective implementation combines gradients.

    Source: tf.distribute.experimental.CommunicationImplementation.
    """

    AUTO = "AUTO"
    """The fastest that there is: NCCL between GPUs, shared memory between CPU processes of one machine, else Gloo."""
    RING = "RING"
    """A ring of all replicas. On NVIDIA GPUs, too, it is lockstep's own ring, not NCCL's."""
    NCCL = "NCCL"
    """NVIDIA's library; GPUs only."""


@dataclass(frozen=True)
class CommunicationOptions:
    """Options of the communication between workers.

    Attributes:
        bytes_per_pack: Gradients are reduced in packs of about this many bytes; 0 (default): as is fastest.
        timeout_seconds: Seconds that a worker may be late for a call before the others give up, or `None` (default)
            for LOCKSTEP_PEER_TIMEOUT's value, 600.
        implementation: A `CommunicationImplementation` or its name. Default: AUTO.

    Raises:
        ArgumentError: If a value is out of range or unknown.

    Source: tf.distribute.experimental.CommunicationOptions.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO

    def __post_init__(self) -> None:
        if type(self.bytes_per_pack) is not int or self.bytes_per_pack < 0:
            raise ArgumentError(
                f"bytes_per_pack must be a non-negative integer. Received: {self.bytes_per_pack!r}. Example: 33554432"
            )
        if self.timeout_seconds is not None and not 0 < self.timeout_seconds < float("inf"):
            raise ArgumentError(
                f"timeout_seconds must be None or a positive number. Received: {self.timeout_seconds!r}. Example: 120"
            )
        object.__setattr__(self, "implementation", _implementation(self.implementation))


def _implementation(value: CommunicationImplementation | str) -> CommunicationImplementation:
    try:
        return CommunicationImplementation(value.upper() if isinstance(value, str) else value)
    except ValueError:
        names = ", ".join(i.name for i in CommunicationImplementation)
        raise ArgumentError(f"The communication implementation must be one of {names}. Received: {value!r}.") from None


def reduction(options: CommunicationOptions, platform: str) -> Reduction | None:
    """Returns what the replica view must do itself, or `None` if XLA's partitioning honours the options.

    Raises:
        UnsupportedError: If `platform` cannot do what is asked for.
    """
    from lockstep._step.reduction import Reduction

    if options.implementation is CommunicationImplementation.NCCL:
        require_gpus("NCCL communication", platform)
    if options.implementation is CommunicationImplementation.RING:
        return Reduction("ring", pack_bytes=options.bytes_per_pack)
    return Reduction(pack_bytes=options.bytes_per_pack) if options.bytes_per_pack else None


def require_gpus(what: str, platform: str) -> None:
    """Raises `UnsupportedError` unless `platform` is a GPU's."""
    if platform not in ("gpu", "cuda", "rocm"):
        raise UnsupportedError(
            f"{what} needs GPUs: NCCL is NVIDIA's library for them. The devices here are of type {platform!r}. "
            "Use AUTO, which takes the best that the devices have, or RING."
        )
