"""The variables of a model_fn on the replicas, between steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.state import ReplicatedState
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.program import ModelProgram
from lockstep.estimator._model_fn.variables import GLOBAL_STEP


class VariableState(ReplicatedState[ModelProgram]):
    """The values of variables on the replicas, between steps.

    Args:
        program: The step program.
        values: The first values, by key. Of those that replicas shard, the chief's count: the call is collective.
    """

    def __init__(self, program: ModelProgram, values: Mapping[str, Any]) -> None:
        shapes = {k: jax.ShapeDtypeStruct(np.shape(v), np.asarray(v).dtype) for k, v in values.items()}
        super().__init__(program, shapes)
        # jax.tree sorts the keys of a dict, so that every process numbers the state's leaves alike.
        self._numbers = {key: i for i, key in enumerate(sorted(values))}
        # Not sorted: workers call in the order of their programs, which are the same.
        self._values: dict[str, jax.Array] = {k: self._place_from_chief(self._numbers[k], v) for k, v in values.items()}

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes and dtypes of the state."""
        return {key: jax.ShapeDtypeStruct(v.shape, v.dtype) for key, v in self._values.items()}

    def broadcast_from_chief(self) -> None:
        """Broadcasts the chief's values; a collective call."""
        leaves, structure = jax.tree.flatten(self._values)
        self._values = jax.tree.unflatten(structure, self._follow_chief(leaves))

    def assign(self, key: str, value: np.ndarray) -> None:
        """Sets a variable in this process.

        Raises:
            UnsupportedError: If it is sharded over workers.
        """
        self._check_unsharded(key)
        self._values[key] = self._place_from_chief(self._numbers[key], jnp.asarray(value))

    def local(self, keys: Iterable[str]) -> dict[str, Any]:
        """Returns this process' copies of some variables; a collective call for sharded ones."""
        return {key: self._local(self._numbers[key], self._values[key]) for key in keys}

    def value(self, key: str) -> np.ndarray:
        """Returns a variable's value on the host.

        Raises:
            UnsupportedError: If it is sharded over workers.
        """
        self._check_unsharded(key)
        return np.asarray(self._local(self._numbers[key], self._values[key]))

    @property
    def is_sharded(self) -> bool:
        """Returns whether optimizer state is sharded over workers."""
        return bool(self.sharded) and not self._program.runtime.is_alone

    @property
    def global_step(self) -> int:
        """Returns the number of steps done; waits for the step in progress."""
        return int(self.value(GLOBAL_STEP))

    def _check_unsharded(self, key: str) -> None:
        if self.is_sharded and self._numbers.get(key) in self.sharded:
            raise UnsupportedError(
                "With shard_optimizer_state a part of each array of an optimizer is on each worker, and it takes all "
                f"of them to put it together. Received: {key!r}, asked for or set by a hook. Read it from a "
                "checkpoint, with Estimator.get_variable_value, or make the strategy without it."
            )

    def __contains__(self, key: str) -> bool:
        return key in self._values
