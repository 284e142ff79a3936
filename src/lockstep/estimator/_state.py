"""The variables of a model_fn on the replicas, between steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import ArrayLike, State
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.program import ModelProgram
from lockstep.estimator._model_fn.variables import GLOBAL_STEP


class VariableState:
    """The values of variables on the replicas, between steps.

    Args:
        program: The step program.
        values: The first values, by key.
    """

    def __init__(self, program: ModelProgram, values: Mapping[str, Any]) -> None:
        self._program = program
        # Sorted, so that every process numbers the state's leaves alike.
        keys, slots = sorted(values), program.optimizer_sharding
        shapes = {k: jax.ShapeDtypeStruct(np.shape(v), np.asarray(v).dtype) for k, v in values.items()}
        axes = [None] * len(keys) if slots is None else slots.axes(shapes)
        # Only the chief may know values that replicas shard, so it distributes them itself.
        self._sharded = frozenset(k for k, axis in zip(keys, axes, strict=True) if axis is not None)
        self._values: dict[str, jax.Array] = {k: self._put(k, v) for k, v in values.items()}

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes and dtypes of the state."""
        return {key: jax.ShapeDtypeStruct(v.shape, v.dtype) for key, v in self._values.items()}

    def take(self) -> dict[str, jax.Array]:
        """Returns the state for a step, which donates its buffers."""
        return self._values

    def give(self, state: State) -> None:
        """Stores the state that a step returned."""
        self._values = state

    def broadcast_from_chief(self) -> None:
        """Broadcasts the chief's values; a collective call."""
        keys = [key for key in self._values if key not in self._sharded]
        self._values.update(zip(keys, self._program.agree_on_state([self._values[k] for k in keys]), strict=True))

    def assign(self, key: str, value: np.ndarray) -> None:
        """Sets a variable in this process.

        Raises:
            UnsupportedError: If it is sharded over workers.
        """
        self._check_unsharded(key)
        self._values[key] = self._put(key, jnp.asarray(value))

    def local(self, keys: Iterable[str]) -> dict[str, Any]:
        """Returns this process' copies of some variables; a collective call for sharded ones."""
        return {key: self._local(key) for key in keys}

    def value(self, key: str) -> np.ndarray:
        """Returns a variable's value on the host.

        Raises:
            UnsupportedError: If it is sharded over workers.
        """
        self._check_unsharded(key)
        return np.asarray(self._local(key))

    @property
    def is_sharded(self) -> bool:
        """Returns whether optimizer state is sharded over workers."""
        return bool(self._sharded) and not self._program.runtime.is_alone

    def _put(self, key: str, value: ArrayLike) -> jax.Array:
        slots = self._program.optimizer_sharding
        if slots is None or key not in self._sharded:
            return self._program.place_state(value)
        return slots.place_from_chief(value)

    def _local(self, key: str) -> Any:
        slots = self._program.optimizer_sharding
        if slots is None or key not in self._sharded:
            return self._program.local(self._values[key])
        return slots.gather_to_host(self._values[key])

    def _check_unsharded(self, key: str) -> None:
        if self.is_sharded and key in self._sharded:
            raise UnsupportedError(
                "With shard_optimizer_state a part of each array of an optimizer is on each worker, and it takes all "
                f"of them to put it together. Received: {key!r}, asked for or set by a hook. Read it from a "
                "checkpoint, with Estimator.get_variable_value, or make the strategy without it."
            )

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def global_step(self) -> int:
        """Returns the number of steps done; waits for the step in progress."""
        return int(self.value(GLOBAL_STEP))
