"""An optimizer's state that the replicas divide among them (ZeRO-1): each keeps a part of every array that divides.

The step is the same; XLA adds up of the gradients what a replica needs for its part, and collects the new weights.

Source: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"; Xu et al. 2020,
"Automatic cross-replica sharding of weight update in data-parallel training".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from lockstep._step.replicas import AXIS, Replicas
from lockstep.errors import UnsupportedError


def refuse(replicas: Replicas, what: str) -> None:
    """Raises `UnsupportedError` where an optimizer's state would stay whole, and that is not what was asked for."""
    if replicas.divides_slots and replicas.count > 1:
        raise UnsupportedError(
            "shard_optimizer_state is for fit and train_on_batch of Keras' models. Received a strategy that has it for "
            f"{what}. Make the strategy without it."
        )


class Slots:
    """Where the arrays of a program's state lie.

    Args:
        replicas: Where the program runs, all in this process.
        places: Returns which of the state's leaves are the optimizer's, by number.
    """

    def __init__(self, replicas: Replicas, places: Callable[[], range]) -> None:
        self._replicas = replicas
        self._places = places

    def sharding(self, shape: tuple[int, ...]) -> NamedSharding:
        """Divides an array of the optimizer along its first axis that the replicas can divide; or it is whole."""
        count = self._replicas.count
        axis = next((i for i, n in enumerate(shape) if n and n % count == 0), None)
        if axis is None:
            return self._replicas.whole
        return NamedSharding(self._replicas.mesh, PartitionSpec(*[None] * axis, AXIS))

    def place(self, value: Any) -> jax.Array:
        """Puts an array of the optimizer there."""
        return jax.device_put(value, self.sharding(value.shape))

    def shardings(self, state: Any) -> Any:
        """Returns where each array of a state lies; it may have more leaves after those that are known."""
        places = self._places()
        leaves, structure = jax.tree.flatten(state)
        whole = self._replicas.whole
        return structure.unflatten([self.sharding(a.shape) if i in places else whole for i, a in enumerate(leaves)])

    def kept(self, state: Any) -> Any:
        """Has XLA leave a state that a step returns there."""
        return jax.tree.map(lax.with_sharding_constraint, state, self.shardings(state))

    def local(self, value: jax.Array) -> jax.Array | None:
        """Returns an array that is divided as one of this process; `None` if all have it whole."""
        if value.sharding.is_fully_replicated:
            return None
        return jax.device_put(value, self._replicas.local[0][1])
