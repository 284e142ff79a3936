"""How the replicas of one machine combine gradients.

The default, and XLA's choice, is NCCL on GPUs. The others exist because programs ask for them; they make the training
step run in the replica view, where dropout masks and losses that compare examples are each replica's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.distribute._options import (
    CommunicationImplementation,
    CommunicationOptions,
    compressed,
    reduction,
    require_gpus,
)
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.step.reduction import Algorithm, Reduction


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
        self._packs = _checked(num_packs)

    def reduction(self, platform: str) -> Reduction | None:
        """`None` for one pack: XLA's own."""
        require_gpus("NcclAllReduce", platform)
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
        self._packs = _checked(num_packs)


class ReductionToOneDevice(CrossDeviceOps):
    """Collects all gradients and adds them in the order of the replicas.

    Source: tf.distribute.ReductionToOneDevice, whose `reduce_to_device` and `accumulation_fn` concern variables that
    live on one device; here every replica has its own copy.
    """

    _algorithm = "one_device"


def _checked(num_packs: int) -> int:
    if type(num_packs) is not int or num_packs < 0:
        raise ArgumentError(f"num_packs must be a non-negative integer. Received: {num_packs!r}. Example: 1")
    return num_packs


def local_reduction(options: CommunicationOptions, ops: CrossDeviceOps | None, platform: str) -> Reduction | None:
    """Returns what the replica view of one machine must do itself, or `None` to leave it to XLA.

    Raises:
        ArgumentError: If options and operations contradict each other, or concern other machines.
        UnsupportedError: If `platform` cannot do what is asked for.
    """
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
    return _compressed(ops, ops.reduction(platform), options)


def _compressed(ops: CrossDeviceOps, found: Reduction | None, options: CommunicationOptions) -> Reduction | None:
    from lockstep._engine.step.reduction import Reduction

    if options.gradient_dtype is None and options.power_sgd_rank is None:
        return found
    if options.gradient_dtype is not None and isinstance(ops, HierarchicalCopyAllReduce):
        raise UnsupportedError(
            f"gradient_dtype={options.gradient_dtype!r} needs sums that are rounded once, and "
            "HierarchicalCopyAllReduce would round them at each level. Leave cross_device_ops out."
        )
    return compressed(found or Reduction(), options)


def check_cross_device_ops(value: object) -> None:
    """Raises `ArgumentError` for anything that is not a way to combine gradients."""
    if value is not None and not isinstance(value, CrossDeviceOps):
        raise ArgumentError(
            "cross_device_ops must be an instance of NcclAllReduce, HierarchicalCopyAllReduce or ReductionToOneDevice. "
            f"Received: {value!r}. Example: lockstep.distribute.HierarchicalCopyAllReduce()"
        )
