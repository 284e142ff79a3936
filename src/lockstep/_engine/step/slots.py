"""An optimizer's state that the replicas divide among them (ZeRO-1): each keeps a part of every array that divides.

The step is the same; XLA adds up of the gradients what a replica needs for its part, and collects the new weights.

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

from lockstep._engine.step.placement import fetched, from_chief, local_copy, place_whole
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep.errors import UnsupportedError


def refuse(replicas: Replicas, what: str, instead: str) -> None:
    """Raises `UnsupportedError` where an optimizer's state would stay whole, and that is not what was asked for."""
    if replicas.divides_slots and replicas.count > 1:
        raise UnsupportedError(
            "shard_optimizer_state is for training whose steps XLA divides: fit and train_on_batch of Keras' models, "
            f"Estimator.train, and lockstep.training.Program in its global view. Received: a strategy that has it for "
            f"{what}. {instead}"
        )


class Slots:
    """Where the arrays of a program's state lie.

    Args:
        replicas: Where the program runs.
        places: Returns which of the state's leaves are the optimizer's, by number.
    """

    def __init__(self, replicas: Replicas, places: Callable[[], Collection[int]]) -> None:
        self._replicas = replicas
        self._places = places

    def axis(self, shape: Sequence[int]) -> int | None:
        """Along which axis an array of the optimizer is divided: the first that the replicas can divide."""
        count = self._replicas.count
        return next((i for i, n in enumerate(shape) if n and n % count == 0), None)

    def axes(self, state: Any) -> list[int | None]:
        """Along which axis each leaf of a state is divided; there may be more leaves after those that are known."""
        places = self._places()
        return [self.axis(leaf.shape) if i in places else None for i, leaf in enumerate(jax.tree.leaves(state))]

    def specs(self, state: Any) -> Any:
        """Returns the same as a tree of specs."""
        return jax.tree.unflatten(jax.tree.structure(state), [_spec(axis) for axis in self.axes(state)])

    def kept(self, state: Any) -> Any:
        """Has XLA leave a state that a step returns there."""
        mesh = self._replicas.mesh
        return jax.tree.map(
            lambda a, spec: lax.with_sharding_constraint(a, NamedSharding(mesh, spec)), state, self.specs(state)
        )

    def place(self, value: Any) -> jax.Array:
        """Puts an array of the optimizer there, of which each process has the same whole."""
        sharding = NamedSharding(self._replicas.mesh, _spec(self.axis(value.shape)))
        own = sharding.addressable_devices_indices_map(tuple(value.shape))
        parts = [jax.device_put(value[index], device) for device, index in own.items()]
        return jax.make_array_from_single_device_arrays(tuple(value.shape), sharding, parts)

    def place_of_chief(self, value: Any) -> jax.Array:
        """Puts the chief's content of an array there; all tasks call it together, the others with any content."""
        if self._replicas.runtime.is_alone:
            return self.place(value)
        return self.place(local_copy(from_chief(self._replicas, [place_whole(self._replicas, value)])[0]))

    def is_divided(self, value: Any) -> bool:
        """Whether an array lies there in parts."""
        return len(value.sharding.device_set) > 1 and not value.sharding.is_fully_replicated

    def fetched(self, value: jax.Array) -> np.ndarray[Any, Any]:
        """Returns the whole of an array in parts, in the host's memory; all tasks call it together."""
        return fetched(self._replicas, value)


def _spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS)
