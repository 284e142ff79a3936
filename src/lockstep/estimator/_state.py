"""The variables of a model_fn while the loop runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._model_fn.program import ModelProgram
from lockstep._model_fn.variables import GLOBAL_STEP
from lockstep.errors import UnsupportedError


class VariableState:
    """Holds the value of each variable on the replicas, between steps.

    Args:
        program: The step program.
        values: The first values, by key.
    """

    def __init__(self, program: ModelProgram, values: Mapping[str, Any]) -> None:
        self._program = program
        keys, slots = sorted(values), program.slots
        shapes = {k: jax.ShapeDtypeStruct(np.shape(v), np.asarray(v).dtype) for k, v in values.items()}
        axes = [None] * len(keys) if slots is None else slots.axes(shapes)
        # What replicas divide is the chief's, which may be the only one to know it.
        self._divided = frozenset(k for k, axis in zip(keys, axes, strict=True) if axis is not None)
        self._held: dict[str, jax.Array] = {k: self._place(k, v) for k, v in values.items()}

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """What a step takes, as shapes and types."""
        return {key: jax.ShapeDtypeStruct(v.shape, v.dtype) for key, v in self._held.items()}

    def take(self) -> dict[str, jax.Array]:
        """Hands the state to a step, which consumes it."""
        return self._held

    def give(self, state: Any) -> None:
        """Takes the state that a step returned."""
        self._held = state

    def follow_chief(self) -> None:
        """Makes the chief's values everyone's, on all tasks at once."""
        keys = [key for key in self._held if key not in self._divided]
        self._held.update(zip(keys, self._program.agree_on_state([self._held[k] for k in keys]), strict=True))

    def assign(self, key: str, value: np.ndarray) -> None:
        """Sets a variable, on this task.

        Raises:
            UnsupportedError: If it lies in parts on several workers.
        """
        self._demand_here(key)
        self._held[key] = self._place(key, jnp.asarray(value))

    def local(self, keys: Iterable[str]) -> dict[str, Any]:
        """Returns this process' copies of some variables; all tasks call it together."""
        return {key: self._local(key) for key in keys}

    def value(self, key: str) -> np.ndarray:
        """Returns a variable's value on the host.

        Raises:
            UnsupportedError: If it lies in parts on several workers.
        """
        self._demand_here(key)
        return np.asarray(self._local(key))

    @property
    def is_in_parts(self) -> bool:
        """Whether no worker alone has all of it."""
        return bool(self._divided) and not self._program.runtime.is_alone

    def _place(self, key: str, value: Any) -> jax.Array:
        slots = self._program.slots
        if slots is None or key not in self._divided:
            return self._program.place_state(value)
        return slots.place_of_chief(value)

    def _local(self, key: str) -> Any:
        slots = self._program.slots
        if slots is None or key not in self._divided:
            return self._program.local(self._held[key])
        return slots.fetched(self._held[key])

    def _demand_here(self, key: str) -> None:
        if self.is_in_parts and key in self._divided:
            raise UnsupportedError(
                "With shard_optimizer_state a part of each array of an optimizer is on each worker, and it takes all "
                f"of them to put it together. Received: {key!r}, asked for or set by a hook. Read it from a "
                "checkpoint, with Estimator.get_variable_value, or make the strategy without it."
            )

    def __contains__(self, key: str) -> bool:
        return key in self._held

    @property
    def global_step(self) -> int:
        """The number of steps done; waits for the step under way."""
        return int(self.value(GLOBAL_STEP))
