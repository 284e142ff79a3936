"""tf.distribute.coordinator: lockstep.distribute.coordinator itself."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.distribute.coordinator import ClusterCoordinator as ClusterCoordinator
from lockstep.distribute.coordinator import PerWorkerValues as PerWorkerValues
from lockstep.distribute.coordinator import RemoteValue as RemoteValue

__all__ = ["ClusterCoordinator", "PerWorkerValues", "RemoteValue"]

__getattr__ = _getter(__name__)
