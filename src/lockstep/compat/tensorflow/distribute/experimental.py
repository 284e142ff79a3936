"""tf.distribute.experimental: lockstep.distribute.experimental itself."""

from __future__ import annotations

from typing import Any as _Any

import lockstep.distribute.experimental as _experimental
from lockstep.compat.tensorflow import _missing
from lockstep.distribute.experimental import CollectiveCommunication as CollectiveCommunication
from lockstep.distribute.experimental import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute.experimental import CommunicationOptions as CommunicationOptions
from lockstep.distribute.experimental import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from lockstep.distribute.experimental import ParameterServerStrategy as ParameterServerStrategy
from lockstep.distribute.experimental import ValueContext as ValueContext
from lockstep.distribute.experimental import partitioners as partitioners

# TensorFlow 2.4 renamed the class.
CollectiveHints = CommunicationOptions

__all__ = ["CollectiveCommunication", "CollectiveHints", "CommunicationImplementation", "CommunicationOptions"]
__all__ += ["MultiWorkerMirroredStrategy", "ParameterServerStrategy", "ValueContext", "partitioners"]

_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    """Returns a name of lockstep.distribute.experimental."""
    return getattr(_experimental, name) if name in _experimental.__all__ else _other(name)
