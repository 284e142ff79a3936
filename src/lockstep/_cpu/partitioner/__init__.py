"""Divides a step that is written for the whole batch over the replicas, with reductions that are explicit."""

from __future__ import annotations

from lockstep._cpu.partitioner.partitioned import Partitioned as Partitioned
from lockstep._cpu.partitioner.partitioned import partitioned as partitioned
from lockstep._cpu.partitioner.partitioned import partitioned_jaxpr as partitioned_jaxpr
