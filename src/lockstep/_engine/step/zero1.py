"""ZeRO-1: the state of an optimizer, divided over the replicas; each keeps a part of every array that divides.

The step is the same; XLA reduce-scatters the gradients that a replica needs for its part, and all-gathers the weights.

Source: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"; Xu et al. 2020,
"Automatic cross-replica sharding of weight update in data-parallel training".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.placement import broadcast_from_chief, gather_to_host, local_copy, replicate
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._types import Array, State
from lockstep.errors import UnsupportedError

# The others are a step away, or in one that waits for this task.
_GATHER_SECONDS = 60.0
_GATHER_TOPIC = "a place where workers may read an optimizer's state, which lies in parts on all of them"


def refuse(replicas: Replicas, what: str, instead: str) -> None:
    """Raises `UnsupportedError` where an optimizer's state would stay whole, and that is not what was asked for."""
    if replicas.shards_optimizer_state and replicas.count > 1:
        raise UnsupportedError(
            "shard_optimizer_state is for training whose steps XLA divides: fit and train_on_batch of Keras' models, "
            f"Estimator.train, and lockstep.training.Program in its global view. Received: a strategy that has it for "
            f"{what}. {instead}"
        )


class OptimizerSharding:
    """Shardings of the arrays of a program's state."""

    def __init__(self, replicas: Replicas, indices: Callable[[], Collection[int]]) -> None:
        self._replicas = replicas
        self._indices = indices

    def axis(self, shape: Sequence[int]) -> int | None:
        """Returns along which axis an array of the optimizer is divided: the first that the replicas can divide."""
        # By the shape alone, so that all tasks, and a restart, come to the same.
        count = self._replicas.count
        return next((i for i, n in enumerate(shape) if n and n % count == 0), None)

    def axes(self, state: State) -> list[int | None]:
        """Returns along which axis each leaf of a state is divided."""
        indices = self._indices()
        return [self.axis(leaf.shape) if i in indices else None for i, leaf in enumerate(jax.tree.leaves(state))]

    def specs(self, state: State) -> Any:
        """Returns the same as a tree of specs."""
        return jax.tree.unflatten(jax.tree.structure(state), [_spec(axis) for axis in self.axes(state)])

    def constrain(self, state: State) -> State:
        """Has XLA leave a state that a step returns there."""
        mesh = self._replicas.mesh
        return jax.tree.map(
            lambda a, spec: lax.with_sharding_constraint(a, NamedSharding(mesh, spec)), state, self.specs(state)
        )

    def place(self, value: Array) -> jax.Array:
        """Puts an array of the optimizer there, of which each process has the same whole."""
        sharding = NamedSharding(self._replicas.mesh, _spec(self.axis(value.shape)))
        own = sharding.addressable_devices_indices_map(tuple(value.shape))
        parts = [jax.device_put(value[index], device) for device, index in own.items()]
        return jax.make_array_from_single_device_arrays(tuple(value.shape), sharding, parts)

    def place_from_chief(self, value: Array) -> jax.Array:
        """Puts the chief's content of an array there; all tasks call it together, the others with any content."""
        if not self._replicas.runtime.is_alone:
            value = local_copy(broadcast_from_chief(self._replicas, [replicate(self._replicas, value)])[0])
        return self.place(value)

    def is_divided(self, value: jax.Array) -> bool:
        """Returns whether an array lies there in parts."""
        return len(value.sharding.device_set) > 1 and not value.sharding.is_fully_replicated

    def gather_to_host(self, value: jax.Array) -> np.ndarray[Any, Any]:
        """Returns the whole of an array in parts, in the host's memory; all tasks call it together."""
        return gather_to_host(self._replicas, value)


def _spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS)


class OptimizerStateGather:
    """Gathers sharded state for a worker that reads it, at any time.

    Gathering is collective: at each sync point every worker calls `read` or `sync_point`; if any reads, all gather.
    """

    def __init__(self, runtime: Runtime, collect: Callable[[], None]) -> None:
        self._runtime = runtime
        self._collect = collect
        self._is_due = False

    def begin(self) -> None:
        """Notes that a step makes new values, which nobody has gathered."""
        self._is_due = not self._runtime.is_alone

    def read(self) -> None:
        """Gathers the values, as soon as the other tasks have come to `read` or `sync_point`."""
        self._meet(reads=True)

    def sync_point(self) -> None:
        """Lets the others read: this task needs nothing before it goes on. All tasks call it in the same places."""
        self._meet(reads=False)

    def gather(self) -> None:
        """Gathers the values; all tasks call it together."""
        if self._is_due:
            self._is_due = False
            self._collect()

    def _meet(self, reads: bool) -> None:
        # `_is_due` first: it is alike on all tasks, so that either all or none of them take part in the message.
        if self._is_due and any(self._runtime.all_gather_object(_GATHER_TOPIC, reads, _GATHER_SECONDS)):
            self.gather()
