"""Values that differ between replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax


class PerReplica:
    """One value for each replica of this process.

    Attributes:
        values: The values, in the order of the replicas.

    Source: tf.distribute.DistributedValues.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = tuple(values)

    def __repr__(self) -> str:
        return f"PerReplica({', '.join(f'{i}: {v!r}' for i, v in enumerate(self.values))})"


def per_replica(structures: Sequence[Any]) -> Any:
    """Returns a structure for each replica as one structure of values for each replica.

    With a single replica in this process its own values come as they are.
    """
    if len(structures) == 1:
        return structures[0]
    return jax.tree.map(lambda *values: PerReplica(values), *structures)


def local_results(value: Any) -> tuple[Any, ...]:
    """Returns what each replica of this process has of a structure."""
    leaves, structure = jax.tree.flatten(value)
    count = max([len(v.values) for v in leaves if isinstance(v, PerReplica)], default=1)
    parts = [v.values if isinstance(v, PerReplica) else (v,) * count for v in leaves]
    return tuple(structure.unflatten(values) for values in zip(*parts, strict=True)) if leaves else (value,)
