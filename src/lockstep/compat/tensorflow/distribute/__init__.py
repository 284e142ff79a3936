"""tf.distribute: lockstep.distribute itself."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

import lockstep.distribute as _distribute
from lockstep.compat.tensorflow import _missing
from lockstep.data import InputContext as InputContext
from lockstep.distribute import CrossDeviceOps as CrossDeviceOps
from lockstep.distribute import DistributedDataset as DistributedDataset
from lockstep.distribute import DistributedIterator as DistributedIterator
from lockstep.distribute import DistributedValues as DistributedValues
from lockstep.distribute import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
from lockstep.distribute import InputOptions as InputOptions
from lockstep.distribute import MirroredStrategy as MirroredStrategy
from lockstep.distribute import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from lockstep.distribute import NcclAllReduce as NcclAllReduce
from lockstep.distribute import OneDeviceStrategy as OneDeviceStrategy
from lockstep.distribute import ParameterServerStrategy as ParameterServerStrategy
from lockstep.distribute import ReduceOp as ReduceOp
from lockstep.distribute import ReductionToOneDevice as ReductionToOneDevice
from lockstep.distribute import ReplicaContext as ReplicaContext
from lockstep.distribute import RunOptions as RunOptions
from lockstep.distribute import Server as Server
from lockstep.distribute import Strategy as Strategy
from lockstep.distribute import get_replica_context as get_replica_context
from lockstep.distribute import get_strategy as get_strategy
from lockstep.distribute import has_strategy as has_strategy
from lockstep.distribute import in_cross_replica_context as in_cross_replica_context
from lockstep.distribute.internal import InputReplicationMode as InputReplicationMode
from lockstep.distribute.internal import StrategyExtended as StrategyExtended
from lockstep.distribute.internal import experimental_set_strategy as experimental_set_strategy

_LAZY = {name: f"{__name__}.{name}" for name in ("cluster_resolver", "coordinator", "experimental")}

__all__ = ["CrossDeviceOps", "DistributedDataset", "DistributedIterator", "DistributedValues"]
__all__ += ["HierarchicalCopyAllReduce", "InputContext", "InputOptions", "MirroredStrategy"]
__all__ += ["MultiWorkerMirroredStrategy", "NcclAllReduce", "OneDeviceStrategy", "ReduceOp", "ReductionToOneDevice"]
__all__ += ["ReplicaContext", "RunOptions", "Server", "Strategy", "cluster_resolver", "coordinator", "experimental"]
__all__ += [
    "ParameterServerStrategy",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
__all__ += ["InputReplicationMode", "StrategyExtended", "experimental_set_strategy"]

_other = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    """Returns a name of lockstep.distribute, such as PerReplica."""
    # Its own module has names that only programs for TensorFlow need.
    is_forwarded = name in _distribute.__all__ and name not in _LAZY
    return getattr(_distribute, name) if is_forwarded else _other(name)


__dir__ = _missing.lister(globals(), _LAZY)
