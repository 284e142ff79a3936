"""The replicas of a strategy: their devices, across processes, and how they work together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.reduction import Reduction

# `jax.Device` is a name that type checkers do not accept as a type.
Device = Any

AXIS = "replica"
BatchStatistics = Literal["global", "replica"]


@dataclass(frozen=True)
class LocalSGDOptions:
    """How long replicas train by themselves, and the outer optimizer that then takes their changes.

    Attributes:
        every: Steps between two outer steps.
        learning_rate: The outer optimizer's.
        momentum: The outer optimizer's; 0 for none.
        nesterov: Whether it is Nesterov's.
    """

    every: int
    learning_rate: float
    momentum: float
    nesterov: bool

    @property
    def averages(self) -> bool:
        """Returns whether an outer step is the mean of what the replicas have come to, and nothing else."""
        return self.learning_rate == 1 and self.momentum == 0


@dataclass(frozen=True, eq=False)
class Replicas:
    """One replica per device; the devices of all processes, the chief's first.

    Attributes:
        runtime: This process among the others.
        devices: All devices, in replica order.
        batch_statistics: Over which examples batch normalisation takes its moments while training.
        reduction: How gradients are combined, or `None` to leave it to XLA's partitioner.
        local_sgd: How replicas train by themselves in between; `None` if each step is one of all.
        shards_optimizer_state: Whether they divide the state of an optimizer among them.
        count: Number of replicas, over all processes.
    """

    runtime: Runtime
    devices: Sequence[Device]
    batch_statistics: BatchStatistics = "global"
    reduction: Reduction | None = None
    local_sgd: LocalSGDOptions | None = None
    shards_optimizer_state: bool = False
    count: int = field(init=False)

    def __post_init__(self) -> None:
        # Stored, because each dispatch asks for it.
        object.__setattr__(self, "count", len(self.devices))

    @property
    def explicit(self) -> bool:
        """Returns whether training steps run in the replica view: written for one replica, reduced explicitly."""
        return self.count > 1 and (self.batch_statistics == "replica" or self.reduction is not None)

    @cached_property
    def mesh(self) -> Mesh:
        """All devices along one axis."""
        return Mesh(np.asarray(self.devices, dtype=object), (AXIS,))

    @cached_property
    def whole(self) -> NamedSharding:
        """A full copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @cached_property
    def by_example(self) -> NamedSharding:
        """The first axis divided over the replicas."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @cached_property
    def by_example_of_each(self) -> NamedSharding:
        """Of batches that are stacked: the second axis divided over the replicas."""
        return NamedSharding(self.mesh, PartitionSpec(None, AXIS))

    @cached_property
    def local(self) -> tuple[tuple[int, Device], ...]:
        """The replicas of this process: (replica number, device)."""
        here = jax.process_index()
        return tuple((i, d) for i, d in enumerate(self.devices) if d.process_index == here)
