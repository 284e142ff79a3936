"""tf.distribute.experimental: lockstep's strategies and options, under the names that programs use."""

# ruff: noqa: F822

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import functools as _functools
import logging as _logging
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from lockstep._engine.runtime import local_devices as _local_devices
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow.distribute._preemption import PreemptionCheckpointHandler as PreemptionCheckpointHandler
from lockstep.compat.tensorflow.distribute._preemption import TerminationConfig as TerminationConfig
from lockstep.distribute import MirroredStrategy as _MirroredStrategy
from lockstep.distribute.experimental import CollectiveCommunication as CollectiveCommunication
from lockstep.distribute.experimental import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute.experimental import CommunicationOptions as _CommunicationOptions
from lockstep.distribute.experimental import MultiWorkerMirroredStrategy as _MultiWorkerMirroredStrategy
from lockstep.distribute.experimental import ParameterServerStrategy as ParameterServerStrategy
from lockstep.distribute.experimental import ValueContext as ValueContext
from lockstep.distribute.experimental import partitioners as partitioners

__all__ = ["CentralStorageStrategy", "CollectiveCommunication", "CollectiveHints", "CommunicationImplementation"]
__all__ += ["CommunicationOptions", "MultiWorkerMirroredStrategy", "ParameterServerStrategy"]
__all__ += ["PreemptionCheckpointHandler", "TerminationConfig", "ValueContext", "coordinator", "partitioners"]


def _usable(value: _Any) -> _Any:
    """Returns an implementation of communication; AUTO, with a warning, for NCCL where there are no GPUs."""
    is_nccl = getattr(value, "name", str(value)).upper() == "NCCL"
    if not is_nccl or _local_devices.gpu_count():
        return value
    _warn_of_nccl()
    return CommunicationImplementation.AUTO


@_functools.cache
def _warn_of_nccl() -> None:
    _logging.getLogger("lockstep").warning(
        "NCCL is for GPUs, and there are none here; AUTO is used, as TensorFlow does."
    )


class CommunicationOptions(_CommunicationOptions):
    """Options of the communication between workers, as `lockstep.distribute.CommunicationOptions`.

    NCCL on a machine without GPUs becomes AUTO.

    Source: tf.distribute.experimental.CommunicationOptions.
    """

    def __init__(
        self,
        bytes_per_pack: int = 0,
        timeout_seconds: float | None = None,
        implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO,
        **options: _Any,
    ) -> None:
        """Creates options: see `lockstep.distribute.CommunicationOptions`."""
        super().__init__(bytes_per_pack, timeout_seconds, _usable(implementation), **options)


class MultiWorkerMirroredStrategy(_MultiWorkerMirroredStrategy):
    """The older form of `MultiWorkerMirroredStrategy`, which takes the implementation of communication alone.

    Source: tf.distribute.experimental.MultiWorkerMirroredStrategy.
    """

    def __init__(
        self,
        communication: CommunicationImplementation | str = CommunicationImplementation.AUTO,
        cluster_resolver: _Any = None,
        **options: _Any,
    ) -> None:
        """Creates a strategy: see `lockstep.distribute.experimental.MultiWorkerMirroredStrategy`."""
        super().__init__(_usable(communication), cluster_resolver, **options)


class CentralStorageStrategy(_MirroredStrategy):
    """Trains on several devices of this machine, as `MirroredStrategy`: each holds the variables, with equal values.

    TensorFlow keeps them on one device; what is computed is the same.

    Source: tf.distribute.experimental.CentralStorageStrategy.
    """

    def __init__(self, compute_devices: _Sequence[str] | None = None, parameter_device: str | None = None) -> None:
        """Creates a strategy.

        Args:
            compute_devices: As `devices` of `MirroredStrategy`.
            parameter_device: Where TensorFlow keeps the variables; here all devices have them.
        """
        super().__init__(compute_devices)


class CollectiveHints(CommunicationOptions):
    """The former name of `CommunicationOptions`. Source: tf.distribute.experimental.CollectiveHints."""

    def __init__(self, bytes_per_pack: int = 0, timeout_seconds: float | None = None) -> None:
        """Creates options: see `CommunicationOptions`."""
        super().__init__(bytes_per_pack, timeout_seconds)


_LAZY = {"coordinator": "lockstep.compat.tensorflow.distribute.coordinator"}
__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
