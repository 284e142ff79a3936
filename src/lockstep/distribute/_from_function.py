"""Values that a function returns for each replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lockstep._engine.step.replicas import Replicas
from lockstep.distribute._values import per_replica
from lockstep.errors import ArgumentError


@dataclass(frozen=True)
class ValueContext:
    """For which replica a value is asked.

    Attributes:
        replica_id_in_sync_group: Its number.
        num_replicas_in_sync: How many there are.

    Source: tf.distribute.experimental.ValueContext.
    """

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


def values_from_function(replicas: Replicas, function: Callable[[ValueContext], Any]) -> Any:
    """See `Strategy.experimental_distribute_values_from_function`."""
    values = [function(ValueContext(i, replicas.count)) for i, _ in replicas.local]
    leaves, structures = zip(*map(jax.tree.flatten, values), strict=True)
    if any(s != structures[0] for s in structures):
        raise ArgumentError(
            "A function that makes values for replicas must return the same structure for each. Received: "
            f"{' and '.join(map(str, dict.fromkeys(structures)))}."
        )
    mine = [[list(np.shape(v)) for v in of_replica] for of_replica in leaves]
    runtime = replicas.runtime
    with runtime.collective_region("strategy.experimental_distribute_values_from_function"):
        everyone = runtime.all_gather_object("values of a function for each replica", mine)
    if len({len(one) for task in everyone for one in task}) > 1:
        raise ArgumentError(
            "A function that makes values for replicas must return the same structure for each. Received: different "
            "numbers of values on different tasks."
        )
    shapes = [[tuple(one[k]) for task in everyone for one in task] for k in range(len(leaves[0]))]
    return per_replica(values, shapes, replicas.count)
