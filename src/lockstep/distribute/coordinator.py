"""tf.distribute.coordinator's names: functions that are scheduled on the workers of a ParameterServerStrategy."""

from __future__ import annotations

from lockstep.distribute._coordinator.coordinator import ClusterCoordinator as ClusterCoordinator
from lockstep.distribute._coordinator.datasets import PerWorkerDataset as PerWorkerDataset
from lockstep.distribute._coordinator.values import PerWorkerValues as PerWorkerValues
from lockstep.distribute._coordinator.values import RemoteValue as RemoteValue

__all__ = ["ClusterCoordinator", "PerWorkerDataset", "PerWorkerValues", "RemoteValue"]
