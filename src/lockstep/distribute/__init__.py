"""Strategies: which devices train a model together, and how. The names are tf.distribute's."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lockstep.distribute import experimental as experimental
from lockstep.distribute._collectives import Alone as _Alone
from lockstep.distribute._communication import CommunicationImplementation as CommunicationImplementation
from lockstep.distribute._communication import CommunicationOptions as CommunicationOptions
from lockstep.distribute._communication import CrossDeviceOps as CrossDeviceOps
from lockstep.distribute._communication import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
from lockstep.distribute._communication import NcclAllReduce as NcclAllReduce
from lockstep.distribute._communication import ReductionToOneDevice as ReductionToOneDevice
from lockstep.distribute._context import ReplicaContext as ReplicaContext
from lockstep.distribute._context import get_replica_context as get_replica_context
from lockstep.distribute._context import get_strategy as get_strategy
from lockstep.distribute._context import has_strategy as has_strategy
from lockstep.distribute._context import in_cross_replica_context as in_cross_replica_context
from lockstep.distribute._context import register_default as _register_default
from lockstep.distribute._input import DistributedDataset as DistributedDataset
from lockstep.distribute._input import DistributedIterator as DistributedIterator
from lockstep.distribute._input import InputOptions as InputOptions
from lockstep.distribute._mirrored import DefaultStrategy as _DefaultStrategy
from lockstep.distribute._mirrored import MirroredStrategy as MirroredStrategy
from lockstep.distribute._mirrored import OneDeviceStrategy as OneDeviceStrategy
from lockstep.distribute._multi_worker import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from lockstep.distribute._options import LocalSteps as LocalSteps
from lockstep.distribute._options import RunOptions as RunOptions
from lockstep.distribute._parameter_server import ParameterServerStrategy as ParameterServerStrategy
from lockstep.distribute._strategy import Strategy as Strategy
from lockstep.distribute._values import DistributedValues as DistributedValues
from lockstep.distribute._values import Mirrored as Mirrored
from lockstep.distribute._values import PerReplica as PerReplica
from lockstep.distribute._values import ReduceOp as ReduceOp

if TYPE_CHECKING:
    from lockstep.data import InputContext as InputContext
    from lockstep.distribute import coordinator as coordinator
    from lockstep.distribute._coordinator.server import Server as Server

_register_default(_DefaultStrategy, _Alone)

__all__ = [
    "CommunicationImplementation",
    "CommunicationOptions",
    "CrossDeviceOps",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "HierarchicalCopyAllReduce",
    "InputContext",
    "InputOptions",
    "LocalSteps",
    "Mirrored",
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
    "PerReplica",
    "ReduceOp",
    "ReductionToOneDevice",
    "ReplicaContext",
    "RunOptions",
    "Server",
    "Strategy",
    "coordinator",
    "experimental",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]


def __getattr__(name: str) -> Any:
    if name == "InputContext":  # With `lockstep.data` comes Keras, which not every use of this package needs.
        from lockstep.data import InputContext

        return InputContext
    if name == "Server":
        from lockstep.distribute._coordinator.server import Server

        return Server
    if name == "coordinator":
        return importlib.import_module(f"{__name__}.coordinator")
    raise AttributeError(f"module 'lockstep.distribute' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
