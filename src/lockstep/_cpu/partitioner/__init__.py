"""Partitioner: divides a step that is written for the whole batch over the replicas, with explicit reductions.

README.md beside it says why and how.
"""

from __future__ import annotations

from lockstep._cpu.partitioner.partition import Partitioned as Partitioned
from lockstep._cpu.partitioner.partition import partition as partition
from lockstep._cpu.partitioner.partition import partition_jaxpr as partition_jaxpr
