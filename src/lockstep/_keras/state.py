"""A model's variables as the state of a step program.

While a loop runs, the values are with the loop, on all replicas. At any other time each variable holds an ordinary
array of this process, so that `model(x)`, `save`, `get_weights` and callbacks work as in plain Keras on every worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Generator, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._keras.ownership import Ownership
from lockstep._step.program import Program

TRAIN = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
TEST = ("trainable_variables", "non_trainable_variables", "metrics_variables")
PREDICT = ("trainable_variables", "non_trainable_variables")


class ModelState:
    """Moves a model's variables between the model and the loop.

    Args:
        model: A built Keras model.
        owned: What is remembered of it.
        program: The step program that the state is for.
        groups: Which variables: `TRAIN`, `TEST` or `PREDICT`.
    """

    def __init__(self, model: Any, owned: Ownership, program: Program, groups: Sequence[str]) -> None:
        self._model = model
        self._owned = owned
        self._program = program
        self._groups = [_variables(model, name) for name in groups]
        self._held: tuple[list[jax.Array], ...] | None = None
        self._changes = 0

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """While open, callbacks that touch `self.model` find its variables up to date, as in Keras."""
        attributes = vars(self._model)
        before = attributes.get("jax_state_sync")
        attributes["jax_state_sync"] = self.sync
        try:
            yield
        finally:
            if before is None:
                del attributes["jax_state_sync"]
            else:
                attributes["jax_state_sync"] = before
            self.sync()

    def take(self) -> tuple[list[jax.Array], ...]:
        """Hands the state to a step, which consumes it."""
        state = self._held if self._held is not None else self._capture()
        self._held = None
        return state

    def give(self, state: Any) -> None:
        """Takes the state that a step returned."""
        self._held = tuple(state)

    def sync(self) -> None:
        """Gives the variables the values that the loop has reached."""
        if self._held is None:
            return
        for variables, values in zip(self._groups, self._held, strict=True):
            for variable, value in zip(variables, values, strict=True):
                local = self._program.local(value)
                variable.assign(local)
                self._owned.handed_out[id(variable)] = (variable.value, value)
        self._held = None

    def shapes(self) -> tuple[list[jax.ShapeDtypeStruct], ...]:
        """What a step takes, as shapes and types."""
        return tuple([jax.ShapeDtypeStruct(v.shape, v.dtype) for v in group] for group in self._groups)

    def signature(self) -> dict[str, str]:
        """Path, dtype and shape of every variable."""
        variables = [v for group in self._groups for v in group]
        return {f"{i} {v.path}": f"{v.dtype}{tuple(v.shape)}" for i, v in enumerate(variables)}

    def digest(self) -> str:
        """A short text that is equal if and only if the signatures are."""
        return hashlib.sha256(repr(self.signature()).encode()).hexdigest()

    def has_changed(self) -> bool:
        """Whether a variable that lasts (not a metric's) has got a value that did not come from the loop."""
        return any(self._unplaced(v) for v in self._lasting())

    def follow_chief(self) -> None:
        """Makes the chief's values everyone's, on all tasks at once."""
        variables = self._lasting()
        placed = self._program.agree_on_state([self._placed(v) for v in variables])
        for variable, value in zip(variables, placed, strict=True):
            variable.assign(self._program.local(value))
            self._owned.handed_out[id(variable)] = (variable.value, value)

    def changes(self) -> int:
        """A checksum of the values that variables were given since the last call, other than by the loop."""
        if self._held is None:
            self._note_changes()
        changes, self._changes = self._changes, 0
        return changes

    def _capture(self) -> tuple[list[jax.Array], ...]:
        if not self._owned.replicas.runtime.is_alone:
            self._note_changes()
        state = tuple([self._placed(v) for v in variables] for variables in self._groups)
        for variables in self._groups:
            for variable in variables:
                # As Keras does: the step consumes the array that the variable would go on holding.
                variable._value = None
        return state

    def _placed(self, variable: Any) -> jax.Array:
        """Returns the variable's value on the replicas, as the loop left it there if nobody has changed it."""
        if self._unplaced(variable):
            return self._program.place_state(variable.value)
        return self._owned.handed_out[id(variable)][1]

    def _unplaced(self, variable: Any) -> bool:
        local, _ = self._owned.handed_out.get(id(variable), (None, None))
        return local is None or variable.value is not local

    def _note_changes(self) -> None:
        for variable in filter(self._unplaced, self._lasting()):
            name = zlib.crc32(variable.path.encode(), self._changes)
            self._changes = zlib.crc32(np.asarray(variable.value).tobytes(), name)

    def _lasting(self) -> list[Any]:
        metrics = {id(v) for v in self._model.metrics_variables}
        return [v for group in self._groups for v in group if id(v) not in metrics]


def _variables(model: Any, group: str) -> list[Any]:
    if group == "optimizer_variables":
        return list(model.optimizer.variables)
    return list(getattr(model, group))
