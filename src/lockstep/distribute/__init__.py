"""Strategies: which devices train a model together, and how. The names are tf.distribute's."""

from __future__ import annotations

from lockstep.distribute import experimental as experimental
from lockstep.distribute._context import get_strategy as get_strategy
from lockstep.distribute._context import has_strategy as has_strategy
from lockstep.distribute._context import in_cross_replica_context as in_cross_replica_context
from lockstep.distribute._cross_device_ops import CrossDeviceOps as CrossDeviceOps
from lockstep.distribute._cross_device_ops import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
from lockstep.distribute._cross_device_ops import NcclAllReduce as NcclAllReduce
from lockstep.distribute._cross_device_ops import ReductionToOneDevice as ReductionToOneDevice
from lockstep.distribute._mirrored import MirroredStrategy as MirroredStrategy
from lockstep.distribute._multi_worker import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from lockstep.distribute._one_device import OneDeviceStrategy as OneDeviceStrategy
from lockstep.distribute._options import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute._options import CommunicationOptions as CommunicationOptions
from lockstep.distribute._strategy import Strategy as Strategy

__all__ = [
    "CommunicationImplementation",
    "CommunicationOptions",
    "CrossDeviceOps",
    "HierarchicalCopyAllReduce",
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "ReductionToOneDevice",
    "Strategy",
    "experimental",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
