"""tf.distribute.experimental's names for what `lockstep.distribute` offers."""

from __future__ import annotations

from typing import Any as _Any

from lockstep.cluster_resolver import ClusterResolver as _ClusterResolver
from lockstep.distribute import _multi_worker
from lockstep.distribute import _partitioners as partitioners
from lockstep.distribute._communication import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute._communication import CommunicationOptions as CommunicationOptions
from lockstep.distribute._parameter_server import ParameterServerStrategy as ParameterServerStrategy
from lockstep.distribute._values import ValueContext as ValueContext

CollectiveCommunication = CommunicationImplementation
"""The former name of `CommunicationImplementation`."""

__all__ = [
    "CollectiveCommunication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "ValueContext",
    "partitioners",
]


class MultiWorkerMirroredStrategy(_multi_worker.MultiWorkerMirroredStrategy):
    """The older form of `lockstep.distribute.MultiWorkerMirroredStrategy`, which takes the implementation alone.

    Args:
        communication: A `CollectiveCommunication`: AUTO (default), RING or NCCL.
        cluster_resolver: Describes the cluster. Default: as for MultiWorkerMirroredStrategy.
        **options: As for `lockstep.distribute.MultiWorkerMirroredStrategy`.

    Raises:
        lockstep.errors.LockstepError: As `lockstep.distribute.MultiWorkerMirroredStrategy` does.

    Source: tf.distribute.experimental.MultiWorkerMirroredStrategy.
    """

    def __init__(
        self,
        communication: CommunicationImplementation | str = CommunicationImplementation.AUTO,
        cluster_resolver: _ClusterResolver | None = None,
        **options: _Any,
    ) -> None:
        super().__init__(cluster_resolver, CommunicationOptions(implementation=communication), **options)
