"""A model's variables as the state of a step program.

While a loop runs, the values are with the loop, on all replicas. At any other time each variable holds an ordinary
array of this process, so that `model(x)`, `save`, `get_weights` and callbacks work as in plain Keras on every worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._engine.keras.divided import Parts, held_by, show
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.step.protocol import Program
from lockstep._engine.step.zero1 import OptimizerStateGather
from lockstep.errors import CheckpointError

_SLOTS = "optimizer_variables"
TRAIN = ("trainable_variables", "non_trainable_variables", _SLOTS, "metrics_variables")
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
        self._names = list(groups)
        self._groups = [_variables(model, name) for name in groups]
        self._divided = self._found_divided()
        self._reading = OptimizerStateGather(owned.replicas.runtime, self._collect)
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
        if self._divided:
            self._reading.begin()
            self._owned.reading = self._reading
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
                self._show(variable, value)
        self._held = None

    def together(self) -> None:
        """Puts together what lies in parts on several workers, for any of them to read; all tasks call it together."""
        self._reading.gather()

    def shapes(self) -> tuple[list[jax.ShapeDtypeStruct], ...]:
        """What a step takes, as shapes and types."""
        return tuple([jax.ShapeDtypeStruct(v.shape, v.dtype) for v in group] for group in self._groups)

    @property
    def global_step(self) -> int | None:
        """The optimizer's count of steps; `None` where nothing is trained, or a step has it."""
        if _SLOTS not in self._names or self._held is not None:
            return None
        # A model with a training step of its own may call anything its optimizer; one that accumulates gradients
        # computes the number.
        found = getattr(getattr(self._model, "optimizer", None), "iterations", None)
        return None if found is None else int(np.asarray(getattr(found, "value", found)))

    def signature(self) -> dict[str, str]:
        """Path, dtype and shape of every variable."""
        variables = [v for group in self._groups for v in group]
        return {f"{i} {v.path}": f"{v.dtype}{tuple(v.shape)}" for i, v in enumerate(variables)}

    def digest(self) -> str:
        """A short text that is equal if and only if the signatures are."""
        return hashlib.sha256(repr(self.signature()).encode()).hexdigest()

    def compiled(self) -> list[str]:
        """A short digest of each step that was compiled for it before."""
        return self._program.compiled()

    def has_changed(self) -> bool:
        """Whether a variable that lasts (not a metric's) has got a value that did not come from the loop."""
        return any(self._unplaced(v) for v in self._lasting())

    def follow_chief(self, everything: bool = False) -> None:
        """Makes the chief's values everyone's, on all tasks at once; those of metrics only if `everything`."""
        variables = [v for group in self._groups for v in group] if everything else self._lasting()
        whole = [v for v in variables if id(v) not in self._divided]
        placed = self._program.agree_on_state([self._placed(v) for v in whole])
        for variable, value in zip(whole, placed, strict=True):
            self._show(variable, value)
        self._divide_chiefs()

    def _divide_chiefs(self) -> None:
        """Divides the chief's values of what lies in parts."""
        slots = self._program.optimizer_sharding
        if slots is None or not self._divided:
            return
        for variable in self._divided.values():
            self._show(variable, slots.place_from_chief(variable.value))
        self._collect()

    def arrays(self, starts: tuple[str, ...] = ("",)) -> dict[str, Any]:
        """Returns this process' copies of values that the loop has reached, by group, number and path.

        All tasks call it together.

        Args:
            starts: With what the names of those that are wanted begin; default: of all.
        """
        found: dict[str, Any] = {}
        for number, (name, variables) in enumerate(zip(self._names, self._groups, strict=True)):
            if not f"{name}/".startswith(starts):
                continue
            if name == _SLOTS and self._divided:
                self.together()
                self.sync()
            held = None if self._held is None else self._held[number]
            values = [held_by(v) for v in variables] if held is None else [self._program.local(v) for v in held]
            found.update({_key(name, i, v): value for i, (v, value) in enumerate(zip(variables, values, strict=True))})
        return found

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Gives the variables of this process the values that `arrays` returned; what it does not hold stays.

        Raises:
            CheckpointError: If they are of other variables: another number of them, other shapes or types.
        """
        for name, variables in zip(self._names, self._groups, strict=True):
            saved = sorted((_number(key), key) for key in arrays if key.startswith(f"{name}/"))
            values = [(key, arrays[key]) for _, key in saved]
            _check_fit(name, variables, values)
            for variable, (_, value) in zip(variables, values, strict=True):
                variable.assign(value)

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
        for key in self._divided:  # What was put together needs no place any more.
            self._owned.handed_out.pop(key, None)
        return state

    def _placed(self, variable: Any) -> jax.Array:
        """Returns the variable's value on the replicas, as the loop left it there if nobody has changed it."""
        if not self._unplaced(variable):
            return self._owned.handed_out[id(variable)][1]
        slots = self._program.optimizer_sharding
        if slots is None or id(variable) not in self._divided:
            return self._program.place_state(variable.value)
        return slots.place(variable.value)

    def _unplaced(self, variable: Any) -> bool:
        local, _ = self._owned.handed_out.get(id(variable), (None, None))
        return local is None or held_by(variable, as_parts=True) is not local

    def _show(self, variable: Any, value: jax.Array) -> None:
        """Gives a variable a value that lies on the replicas."""
        slots = self._program.optimizer_sharding
        if slots is None or not slots.is_divided(value):
            variable.assign(self._program.local(value))
            self._owned.handed_out[id(variable)] = (variable.value, value)
        else:
            parts = Parts(value, slots.gather_to_host, self._reading)
            show(variable, parts)
            self._owned.handed_out[id(variable)] = (parts, value)

    def _collect(self) -> None:
        """Fetches all that lies in parts."""
        self.sync()
        for variable in self._divided.values():
            held = held_by(variable, as_parts=True)
            if isinstance(held, Parts):
                held.fetch()

    def _found_divided(self) -> dict[int, Any]:
        """The variables that replicas divide, by id."""
        slots = self._program.optimizer_sharding
        if slots is None or _SLOTS not in self._names:
            return {}
        variables = self._groups[self._names.index(_SLOTS)]
        return {id(v): v for v in variables if slots.axis(tuple(v.shape)) is not None}

    def _note_changes(self) -> None:
        for variable in filter(self._unplaced, self._lasting()):
            name = zlib.crc32(variable.path.encode(), self._changes)
            self._changes = zlib.crc32(np.asarray(variable.value).tobytes(), name)

    def _lasting(self) -> list[Any]:
        metrics = {id(v) for v in self._model.metrics_variables}
        return [v for group in self._groups for v in group if id(v) not in metrics]


def _variables(model: Any, group: str) -> list[Any]:
    if group == _SLOTS:
        return list(model.optimizer.variables)
    return list(getattr(model, group))


def _key(group: str, number: int, variable: Any) -> str:
    # By number: a program that makes its model again may find other names, such as dense_1 instead of dense.
    return f"{group}/{number}/{variable.path}"


def _number(key: str) -> int:
    return int(key.split("/", 2)[1])


def _check_fit(group: str, variables: Sequence[Any], saved: Sequence[tuple[str, Any]]) -> None:
    here = [(v.path, str(np.dtype(v.dtype)), tuple(v.shape)) for v in variables]
    there = [(key.split("/", 2)[2], str(a.dtype), tuple(a.shape)) for key, a in saved]
    for number in range(max(len(here), len(there))):
        mine = here[number] if number < len(here) else None
        theirs = there[number] if number < len(there) else None
        if mine is None or theirs is None or mine[1:] != theirs[1:]:
            raise CheckpointError(
                f"A backup is restored into the model and the optimizer that it was made of. Variable {number} of "
                f"{group} is {_described(theirs)} in the backup, and {_described(mine)} in the model. Make the same "
                "model and compile it alike, or begin anew in another directory."
            )


def _described(variable: tuple[str, str, tuple[int, ...]] | None) -> str:
    return "missing" if variable is None else f"{variable[0]} ({variable[1]}{list(variable[2])})"
