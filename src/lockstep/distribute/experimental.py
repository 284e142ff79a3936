"""tf.distribute.experimental's names for what `lockstep.distribute` offers."""

from __future__ import annotations

from lockstep.distribute._experimental import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from lockstep.distribute._from_function import ValueContext as ValueContext
from lockstep.distribute._options import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute._options import CommunicationOptions as CommunicationOptions

CollectiveCommunication = CommunicationImplementation

__all__ = [
    "CollectiveCommunication",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ValueContext",
]
