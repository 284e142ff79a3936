"""tf.distribute.experimental's names for what `lockstep.distribute` offers."""

from __future__ import annotations

from typing import Any

from lockstep.cluster_resolver import ClusterResolver
from lockstep.distribute._multi_worker import MultiWorkerMirroredStrategy as _MultiWorkerMirroredStrategy
from lockstep.distribute._options import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute._options import CommunicationOptions as CommunicationOptions

CollectiveCommunication = CommunicationImplementation

__all__ = [
    "CollectiveCommunication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
]


class MultiWorkerMirroredStrategy(_MultiWorkerMirroredStrategy):
    """The older form of `lockstep.distribute.MultiWorkerMirroredStrategy`, which takes the implementation alone.

    Args:
        communication: A `CollectiveCommunication`: AUTO (default), RING or NCCL.
        cluster_resolver: Describes the cluster. Default: `TFConfigClusterResolver()`.
        **options: As for `lockstep.distribute.MultiWorkerMirroredStrategy`.

    Raises:
        lockstep.errors.LockstepError: As `lockstep.distribute.MultiWorkerMirroredStrategy` does.

    Source: tf.distribute.experimental.MultiWorkerMirroredStrategy.
    """

    def __init__(
        self,
        communication: CommunicationImplementation | str = CommunicationImplementation.AUTO,
        cluster_resolver: ClusterResolver | None = None,
        **options: Any,
    ) -> None:
        super().__init__(cluster_resolver, CommunicationOptions(implementation=communication), **options)
