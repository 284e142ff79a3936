"""The variables of a model_fn while the loop runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._model_fn.program import ModelProgram
from lockstep._model_fn.variables import GLOBAL_STEP


class VariableState:
    """Holds the value of each variable on the replicas, between steps.

    Args:
        program: The step program.
        values: The first values, by key.
    """

    def __init__(self, program: ModelProgram, values: Mapping[str, Any]) -> None:
        self._program = program
        self._held: dict[str, jax.Array] = {k: program.place_state(v) for k, v in values.items()}

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
        keys = list(self._held)
        self._held = dict(zip(keys, self._program.agree_on_state([self._held[k] for k in keys]), strict=True))

    def assign(self, key: str, value: np.ndarray) -> None:
        """Sets a variable, on this task."""
        self._held[key] = self._program.place_state(jnp.asarray(value))

    def local(self, keys: Iterable[str]) -> dict[str, jax.Array]:
        """Returns this process' copies of some variables."""
        return {key: self._program.local(self._held[key]) for key in keys}

    def value(self, key: str) -> np.ndarray:
        """Returns a variable's value on the host."""
        return np.asarray(self._program.local(self._held[key]))

    def __contains__(self, key: str) -> bool:
        return key in self._held

    @property
    def global_step(self) -> int:
        """The number of steps done; waits for the step under way."""
        return int(self.value(GLOBAL_STEP))
