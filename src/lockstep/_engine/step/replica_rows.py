"""Arrays of which each replica has its own: a first axis of replicas, divided over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from lockstep._engine.step.placement import from_chief, local_copy, place_whole
from lockstep._engine.step.replicas import Replicas


class ReplicaRows:
    """Brings such arrays to the replicas and back.

    Args:
        replicas: Whose.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        count, lies = replicas.count, replicas.by_example
        self._repeat = jax.jit(
            lambda arrays: [jnp.broadcast_to(a[None], (count, *a.shape)) for a in arrays], out_shardings=lies
        )
        self._row = jax.jit(lambda rows: rows[0])

    def has(self, array: Any) -> bool:
        """Whether an array is one of them."""
        sharding = getattr(array, "sharding", None)
        return isinstance(sharding, NamedSharding) and sharding.spec == self._replicas.by_example.spec

    def repeated(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Gives each replica its copy of arrays that all have whole; nothing travels."""
        return self._repeat(list(arrays)) if arrays else []

    def row(self, array: jax.Array) -> jax.Array:
        """Returns what the first replica of this process has, as an array of this process."""
        return self._row(array.addressable_data(0))

    def placed(self, value: np.ndarray[Any, Any]) -> jax.Array:
        """Puts an array, equal on every process, with a first axis of replicas on them."""
        parts = [jax.device_put(value[i : i + 1], device) for i, device in self._replicas.local]
        return jax.make_array_from_single_device_arrays(value.shape, self._replicas.by_example, parts)

    def of_chief(self, topic: str, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Returns the chief's arrays; all tasks call it together, the others with any."""
        runtime = self._replicas.runtime
        kinds = [[list(v.shape), v.dtype.name] for v in arrays]
        found = runtime.all_gather_object(topic, kinds if runtime.is_chief else None)[0]
        if runtime.is_alone:
            return list(arrays)
        mine = arrays if runtime.is_chief else [np.zeros(shape, dtype) for shape, dtype in found]
        shared = from_chief(self._replicas, [place_whole(self._replicas, v) for v in mine])
        return [np.asarray(local_copy(v)) for v in shared]
