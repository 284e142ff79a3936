"""Parts of `lockstep.distribute` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.distribute._arguments import Fixed as Fixed
from lockstep.distribute._collectives import enter_replica as enter_replica
from lockstep.distribute._context import cross_replica as cross_replica
from lockstep.distribute._context import default as default
from lockstep.distribute._context import demand_replica_context as demand_replica_context
from lockstep.distribute._context import experimental_set_strategy as experimental_set_strategy
from lockstep.distribute._context import whole_batch as whole_batch
from lockstep.distribute._default_models import run_without_strategy as run_without_strategy
from lockstep.distribute._devices import default_devices as default_devices
from lockstep.distribute._devices import device_or_host as device_or_host
from lockstep.distribute._extended import StrategyExtended as StrategyExtended
from lockstep.distribute._input import DistributedDataset as DistributedDataset
from lockstep.distribute._input import DistributedIterator as DistributedIterator
from lockstep.distribute._input import InputReplicationMode as InputReplicationMode
from lockstep.distribute._program import Program as Program
from lockstep.distribute._shards import partition_in_scope as partition_in_scope
from lockstep.distribute._trace import Known as Known
from lockstep.distribute._values import DistributedValues as DistributedValues
from lockstep.distribute._values import InReplica as InReplica
from lockstep.distribute._values import Mirrored as Mirrored
from lockstep.distribute._values import PerReplica as PerReplica
from lockstep.distribute._values import Rows as Rows
from lockstep.distribute._values import UnsupportedValueError as UnsupportedValueError
from lockstep.distribute._values import is_variable as is_variable
from lockstep.distribute._variables import Scope as Scope
from lockstep.distribute._variables import Tape as Tape

__all__ = [
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "Fixed",
    "InReplica",
    "InputReplicationMode",
    "Known",
    "Mirrored",
    "PerReplica",
    "Program",
    "Rows",
    "StrategyExtended",
    "Scope",
    "Tape",
    "UnsupportedValueError",
    "cross_replica",
    "default",
    "default_devices",
    "demand_replica_context",
    "device_or_host",
    "enter_replica",
    "experimental_set_strategy",
    "is_variable",
    "partition_in_scope",
    "run_without_strategy",
    "whole_batch",
]
