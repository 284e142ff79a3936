"""Options of the communication: how gradients travel between replicas, and are combined."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.step.reduction import Algorithm, Reduction

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
        # Not isinstance, here and below: True would pass for 1.
        if type(self.bytes_per_pack) is not int or self.bytes_per_pack < 0:
            raise ArgumentError(
                f"bytes_per_pack must be a non-negative integer. Received: {self.bytes_per_pack!r}. Example: 33554432"
            )
        if self.timeout_seconds is not None and not 0 < self.timeout_seconds < float("inf"):
            raise ArgumentError(
                f"timeout_seconds must be None or a positive number. Received: {self.timeout_seconds!r}. Example: 120"
            )
        # Workers compare their options by repr: "nccl" on one of them must not differ from NCCL on another.
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
    """Returns what the replica view must do itself, or `None` if XLA's partitioning honours the options."""
    from lockstep._engine.step.reduction import Reduction

    if options.implementation is CommunicationImplementation.NCCL:
        require_gpus("NCCL communication", platform)
    algorithm = "ring" if options.implementation is CommunicationImplementation.RING else "all_reduce"
    # `None` for the default: then XLA's partitioner divides the step, which is exact for every layer.
    found = compress(Reduction(algorithm, pack_bytes=options.bytes_per_pack), options)
    return None if found == Reduction() else found


def compress(found: Reduction, options: CommunicationOptions) -> Reduction:
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


class CrossDeviceOps:
    """Base class of the ways to combine gradients. Source: tf.distribute.CrossDeviceOps."""

    _algorithm: Algorithm = "all_reduce"
    _packs = 0

    def reduction(self, platform: str) -> Reduction | None:
        """Returns what the replica view must do itself; raises `UnsupportedError` if `platform` cannot."""
        from lockstep._engine.step.reduction import Reduction

        del platform
        return Reduction(self._algorithm, packs=self._packs)


class NcclAllReduce(CrossDeviceOps):
    """All-reduce by NVIDIA's NCCL, on GPUs only. It is what XLA uses there by itself.

    Args:
        num_packs: Into how many packs gradients are put. 1 (default) leaves it to XLA.

    Raises:
        ArgumentError: If `num_packs` is not a non-negative integer.

    Source: tf.distribute.NcclAllReduce.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self._packs = _check_num_packs(num_packs)

    def reduction(self, platform: str) -> Reduction | None:
        """`None` for one pack: XLA's own."""
        require_gpus("NcclAllReduce", platform)
        # One pack is no reason to leave the global view, which is exact for every layer; several need the replica view.
        return None if self._packs == 1 else super().reduction(platform)


class HierarchicalCopyAllReduce(CrossDeviceOps):
    """Reduces within groups of neighbouring devices first, then between the groups.

    Args:
        num_packs: Into how many packs gradients are put; 0 for none. Default: 1.

    Raises:
        ArgumentError: If `num_packs` is not a non-negative integer.

    Source: tf.distribute.HierarchicalCopyAllReduce.
    """

    _algorithm = "hierarchical"

    def __init__(self, num_packs: int = 1) -> None:
        self._packs = _check_num_packs(num_packs)


class ReductionToOneDevice(CrossDeviceOps):
    """Collects all gradients and adds them in the order of the replicas.

    Source: tf.distribute.ReductionToOneDevice, whose `reduce_to_device` and `accumulation_fn` concern variables that
    live on one device; here every replica has its own copy.
    """

    _algorithm = "one_device"


def _check_num_packs(num_packs: int) -> int:
    if type(num_packs) is not int or num_packs < 0:
        raise ArgumentError(f"num_packs must be a non-negative integer. Received: {num_packs!r}. Example: 1")
    return num_packs


def local_reduction(options: CommunicationOptions, ops: CrossDeviceOps | None, platform: str) -> Reduction | None:
    """Returns what the replica view of one machine must do itself, or `None` to leave it to XLA."""
    if options.timeout_seconds is not None:
        raise ArgumentError(
            "timeout_seconds says how long workers wait for each other. Received it for a MirroredStrategy, which has "
            "none. Leave it out, or use MultiWorkerMirroredStrategy."
        )
    if ops is None:
        return reduction(options, platform)
    if options.bytes_per_pack or options.implementation is not CommunicationImplementation.AUTO:
        raise ArgumentError(
            "Either cross_device_ops or CommunicationOptions say how gradients are packed and added up. Received: "
            f"{type(ops).__name__} and {options}. Leave one of them out; gradient_dtype and power_sgd_rank "
            "go with both."
        )
    return _with_options(ops, ops.reduction(platform), options)


def _with_options(ops: CrossDeviceOps, found: Reduction | None, options: CommunicationOptions) -> Reduction | None:
    from lockstep._engine.step.reduction import Reduction

    if options.gradient_dtype is None and options.power_sgd_rank is None:
        return found
    # ReductionToOneDevice may have it: it collects, and adds once.
    if options.gradient_dtype is not None and isinstance(ops, HierarchicalCopyAllReduce):
        raise UnsupportedError(
            f"gradient_dtype={options.gradient_dtype!r} needs sums that are rounded once, and "
            "HierarchicalCopyAllReduce would round them at each level. Leave cross_device_ops out."
        )
    return compress(found or Reduction(), options)


def check_cross_device_ops(value: object) -> None:
    """Raises `ArgumentError` for anything that is not a way to combine gradients."""
    if value is not None and not isinstance(value, CrossDeviceOps):
        raise ArgumentError(
            "cross_device_ops must be an instance of NcclAllReduce, HierarchicalCopyAllReduce or ReductionToOneDevice. "
            f"Received: {value!r}. Example: lockstep.distribute.HierarchicalCopyAllReduce()"
        )
