"""How gradients travel between workers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.step.reduction import Reduction


# So many are counted exactly.
_MOST_STEPS = 1 << 24
# MNIST, 600 steps on 2 replicas with Adam, two seeds: after 0 steps rank 1 cost 0.8 points of accuracy and rank 4 0.3;
# after 50, 0.3 and 0.1. Later in training 100 steps are next to nothing.
_WHOLE_STEPS = 100


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
        gradient_dtype: "bfloat16": float32 gradients of batches that the replicas divide evenly travel in half the
            bytes. What rounding takes from a replica's gradient is added to its next one, so that it is late, not
            lost; sums are taken in float32, and all replicas have the same weights. Training comes close to that of
            one device, and no longer follows it to the last digits. The step then runs once per replica, where dropout
            masks are each replica's own. One replica sends nothing, and rounds nothing. `None` (default): gradients
            travel as they are.
        power_sgd_rank: A positive integer r: a gradient of two or more axes, seen as a matrix of n x m, travels as two
            factors of n x r and r x m numbers, where these have at most half of its bytes ("PowerSGD"). What they do
            not say of a replica's gradient is added to its next one; what is said above of batches, replicas and
            masks holds here, too. Gradients that are not worth it travel as they are, or as `gradient_dtype` says.
            1 sends least; 4 comes closer to one device. `None` (default): no factors.
        power_sgd_start: For how many steps gradients travel whole before `power_sgd_rank` counts: at first they change
            their directions faster than factors follow. Default: 100 if there is a rank.

    Raises:
        ArgumentError: If a value is out of range or unknown, `gradient_dtype` is asked of a ring, which would round
            what it passes on each time, or `power_sgd_start` is given without `power_sgd_rank`.

    Source: tf.distribute.experimental.CommunicationOptions; `gradient_dtype`, `power_sgd_rank` and `power_sgd_start`
    are lockstep's: docs/speed.md.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO
    gradient_dtype: Literal["bfloat16"] | None = None
    power_sgd_rank: int | None = None
    power_sgd_start: int | None = None

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
        if self.gradient_dtype not in (None, "bfloat16"):
            raise ArgumentError(
                f'gradient_dtype must be None or "bfloat16". Received: {self.gradient_dtype!r}. Gradients would '
                "overflow in float16; in float32 they travel by default."
            )
        if self.gradient_dtype is not None and self.implementation is CommunicationImplementation.RING:
            raise ArgumentError(
                'gradient_dtype="bfloat16" needs sums that are rounded once, and a ring would round them at each '
                "replica. Received: implementation RING. Use AUTO."
            )
        _check_power_sgd(self.power_sgd_rank, self.power_sgd_start)


def _check_power_sgd(rank: int | None, start: int | None) -> None:
    if rank is not None and (type(rank) is not int or rank < 1):
        raise ArgumentError(f"power_sgd_rank must be None or a positive integer. Received: {rank!r}. Example: 4")
    if start is not None and (type(start) is not int or not 0 <= start <= _MOST_STEPS):
        raise ArgumentError(
            f"power_sgd_start must be None or a number of steps, up to {_MOST_STEPS}. Received: {start!r}. Example: 100"
        )
    if start is not None and rank is None:
        raise ArgumentError(
            f"power_sgd_start says when power_sgd_rank begins to count. Received: power_sgd_start={start} without "
            "power_sgd_rank. Set both, or none."
        )


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
    from lockstep._engine.step.reduction import Reduction

    if options.implementation is CommunicationImplementation.NCCL:
        require_gpus("NCCL communication", platform)
    algorithm = "ring" if options.implementation is CommunicationImplementation.RING else "all_reduce"
    found = compressed(Reduction(algorithm, pack_bytes=options.bytes_per_pack), options)
    return None if found == Reduction() else found


def compressed(found: Reduction, options: CommunicationOptions) -> Reduction:
    """Returns a reduction of gradients that travel in as few bytes as the options say."""
    return replace(
        found,
        wire=options.gradient_dtype,
        rank=options.power_sgd_rank or 0,
        whole_steps=_start(options),
    )


def _start(options: CommunicationOptions) -> int:
    if options.power_sgd_rank is None:
        return 0
    return _WHOLE_STEPS if options.power_sgd_start is None else options.power_sgd_start


def checked_options(options: CommunicationOptions | None) -> CommunicationOptions:
    """Returns the options, or the default ones for `None`; raises `ArgumentError` for anything else."""
    if options is None:
        return CommunicationOptions()
    if not isinstance(options, CommunicationOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"communication_options must be a CommunicationOptions. Received: {options!r}. Example: "
            "lockstep.distribute.CommunicationOptions(timeout_seconds=120)"
        )
    return options


def require_gpus(what: str, platform: str) -> None:
    """Raises `UnsupportedError` unless `platform` is a GPU's."""
    if platform not in ("gpu", "cuda", "rocm"):
        raise UnsupportedError(
            f"{what} needs GPUs: NCCL is NVIDIA's library for them. The devices here are of type {platform!r}. "
            "Use AUTO, which takes the best that the devices have, or RING."
        )
