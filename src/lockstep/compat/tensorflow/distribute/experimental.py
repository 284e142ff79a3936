"""tf.distribute.experimental: lockstep's strategies and options, under the names that programs use."""

from __future__ import annotations

from collections.abc import Sequence as _Sequence

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow.distribute._preemption import PreemptionCheckpointHandler as PreemptionCheckpointHandler
from lockstep.compat.tensorflow.distribute._preemption import TerminationConfig as TerminationConfig
from lockstep.distribute import MirroredStrategy as _MirroredStrategy
from lockstep.distribute.experimental import CollectiveCommunication as CollectiveCommunication
from lockstep.distribute.experimental import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute.experimental import CommunicationOptions as CommunicationOptions
from lockstep.distribute.experimental import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from lockstep.distribute.experimental import ParameterServerStrategy as ParameterServerStrategy
from lockstep.distribute.experimental import ValueContext as ValueContext
from lockstep.distribute.experimental import partitioners as partitioners

__all__ = ["CentralStorageStrategy", "CollectiveCommunication", "CollectiveHints", "CommunicationImplementation"]
__all__ += ["CommunicationOptions", "MultiWorkerMirroredStrategy", "ParameterServerStrategy"]
__all__ += ["PreemptionCheckpointHandler", "TerminationConfig", "ValueContext", "partitioners"]


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


__getattr__ = _missing.getter(__name__)
