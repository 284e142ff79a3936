"""tf.distribute: lockstep.distribute itself."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

import lockstep.distribute as _distribute
from lockstep.compat.tensorflow import _missing
from lockstep.data import InputContext as InputContext
from lockstep.distribute import CrossDeviceOps as CrossDeviceOps
from lockstep.distribute import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
from lockstep.distribute import MirroredStrategy as MirroredStrategy
from lockstep.distribute import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from lockstep.distribute import NcclAllReduce as NcclAllReduce
from lockstep.distribute import OneDeviceStrategy as OneDeviceStrategy
from lockstep.distribute import ReductionToOneDevice as ReductionToOneDevice
from lockstep.distribute import Strategy as Strategy
from lockstep.distribute import get_strategy as get_strategy
from lockstep.distribute import has_strategy as has_strategy
from lockstep.distribute import in_cross_replica_context as in_cross_replica_context

_LAZY = {name: f"{__name__}.{name}" for name in ("cluster_resolver", "experimental")}

__all__ = [
    "CrossDeviceOps",
    "HierarchicalCopyAllReduce",
    "InputContext",
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "ReductionToOneDevice",
    "Strategy",
    "cluster_resolver",
    "experimental",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]

_other = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    """What lockstep.distribute has under TensorFlow's name, such as ReduceOp in later versions."""
    return getattr(_distribute, name) if name in _distribute.__all__ else _other(name)


__dir__ = _missing.lister(globals(), _LAZY)
