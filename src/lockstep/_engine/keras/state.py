"""A model's variables as the state of a step program.

While steps run, the values are on the replicas, with the loop. At any other time each variable holds an ordinary array
of this process, so that `model(x)`, `save`, `get_weights` and callbacks work as in plain Keras on every worker. One
that replicas shard (ZeRO-1) holds a `ShardedValue`, which is gathered when it is read.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.step.protocol import Program
from lockstep._engine.step.state import ReplicatedState
from lockstep._engine.step.zero1 import OptimizerStateGather
from lockstep._types import ArrayLike, Model, Variable
from lockstep.errors import CheckpointError

_OPTIMIZER = "optimizer_variables"
_VALUE = "_value"
TRAIN = ("trainable_variables", "non_trainable_variables", _OPTIMIZER, "metrics_variables")
TEST = ("trainable_variables", "non_trainable_variables", "metrics_variables")
PREDICT = ("trainable_variables", "non_trainable_variables")


class ModelState(ReplicatedState[Program]):
    """Moves a model's variables between the model and the loop.

    Args:
        groups: Which variables: `TRAIN`, `TEST` or `PREDICT`.
    """

    def __init__(self, model: Model, owned: Ownership, program: Program, groups: Sequence[str]) -> None:
        self._model = model
        self._owned = owned
        self._groups: dict[str, list[Any]] = {
            name: list(model.optimizer.variables if name == _OPTIMIZER else getattr(model, name)) for name in groups
        }
        self._variables = [v for group in self._groups.values() for v in group]
        shapes = tuple([jax.ShapeDtypeStruct(v.shape, v.dtype) for v in group] for group in self._groups.values())
        super().__init__(program, shapes)
        self._changes = 0

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """Has callbacks that touch `self.model` find its variables up to date, as in Keras."""
        # The attribute is Keras' own: its Model.__getattribute__ calls it before callbacks see variables.
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

    def take(self) -> Any:
        """Returns the state for a step, which donates its buffers."""
        if self._values is None:
            self._values = self._capture()
        state = super().take()
        self._values = None
        if self.sharded:
            self._owned.reading = self._reading
        return state

    def sync(self) -> None:
        """Assigns to the variables the values that steps came to."""
        # One flag, as Keras' own: callbacks that touch no variable cost no copies.
        if self._values is None:
            return
        self._show([(i, v) for i, v in enumerate(v for group in self._values for v in group)])
        self._values = None

    @property
    def global_step(self) -> int | None:
        """Returns the optimizer's count of steps; `None` where nothing is trained, or a step has it."""
        if _OPTIMIZER not in self._groups or self._values is not None:
            return None
        # A model with a training step of its own may call anything its optimizer; one that accumulates gradients
        # computes the number.
        iterations = getattr(getattr(self._model, "optimizer", None), "iterations", None)
        return None if iterations is None else int(np.asarray(getattr(iterations, "value", iterations)))

    def signature(self) -> dict[str, str]:
        """Returns path, dtype and shape of every variable."""
        return {f"{i} {v.path}": f"{v.dtype}{tuple(v.shape)}" for i, v in enumerate(self._variables)}

    def has_changed(self) -> bool:
        """Returns whether a variable that lasts (not a metric's) was assigned to, other than by steps."""
        return any(self._is_assigned(self._variables[i]) for i in self._lasting())

    def changes(self) -> int:
        """Returns a checksum of the values that were assigned since the last call, other than by steps."""
        if self._values is None:
            self._note_changes()
        changes, self._changes = self._changes, 0
        return changes

    def follow_chief(self, everything: bool = False) -> None:
        """Broadcasts the chief's values, a collective call; those of metrics only if `everything`."""
        numbers = range(len(self._variables)) if everything else self._lasting()
        # In one program: a broadcast of each array would take a dispatch each.
        replicated = [i for i in numbers if i not in self.sharded]
        placed = self._program.agree_on_state([self._placed(i) for i in replicated])
        self._show(list(zip(replicated, placed, strict=True)))
        if self.sharded:
            for number in sorted(self.sharded):
                self._show([(number, self._place_from_chief(number, self._variables[number].value))])
            self._collect()

    def arrays(self, starts: tuple[str, ...] = ("",)) -> dict[str, Any]:
        """Returns this process' copies by group, number and path; a collective call.

        Args:
            starts: Beginnings of the wanted names; default: all.
        """
        arrays: dict[str, Any] = {}
        for position, (group, variables) in enumerate(self._groups.items()):
            if not f"{group}/".startswith(starts):
                continue
            if group == _OPTIMIZER and self.sharded:
                # The order is that of all workers; a read of one alone would wait for the others' sync point.
                self.gather()
                self.sync()
            if self._values is None:
                values = [_read(v) for v in variables]
            else:
                values = [self._program.local(v) for v in self._values[position]]
            # By number: a program that makes its model again may find other names, such as dense_1 instead of dense.
            arrays.update({f"{group}/{i}/{v.path}": values[i] for i, v in enumerate(variables)})
        return arrays

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Assigns the values that `arrays` returned to the variables of this process.

        Raises:
            CheckpointError: If they are of other variables: another number of them, other shapes or types.
        """
        for group, variables in self._groups.items():
            keys = sorted((k for k in arrays if k.startswith(f"{group}/")), key=lambda k: int(k.split("/", 2)[1]))
            saved = [(k.split("/", 2)[2], arrays[k]) for k in keys]
            _check_same_variables(group, variables, saved)
            for variable, (_, value) in zip(variables, saved, strict=True):
                variable.assign(value)

    def _capture(self) -> tuple[list[jax.Array], ...]:
        """Moves the values to the replicas, where they are not there already."""
        # Now: steps replace what was assigned, and workers compare checksums of it at the beginning of the next epoch.
        if not self._program.runtime.is_alone:
            self._note_changes()
        placed = iter([self._placed(i) for i in range(len(self._variables))])
        state = tuple([next(placed) for _ in group] for group in self._groups.values())
        for variable in self._variables:
            # As Keras does: the step consumes the array that the variable would go on holding.
            variable._value = None
        for number in self.sharded:
            # The gathered copy takes as much memory as the optimizer's whole state.
            self._owned.copies.forget(self._variables[number])
        return state

    def _placed(self, number: int) -> jax.Array:
        """Returns a variable's value on the replicas: the one that steps left there, unless it was assigned to."""
        variable = self._variables[number]
        placed = self._owned.copies.placed(variable, _held(variable))
        return self._place(number, variable.value) if placed is None else placed

    def _is_assigned(self, variable: Variable) -> bool:
        return self._owned.copies.placed(variable, _held(variable)) is None

    def _show(self, numbered: Sequence[tuple[int, jax.Array]]) -> None:
        """Gives variables, by number, the local copies of values on the replicas."""
        slots, copies = self._program.optimizer_sharding, self._owned.copies
        # In one call: a model has hundreds of variables, and an epoch may be one step.
        local = self._program.local([value for _, value in numbered])
        for (number, value), own in zip(numbered, local, strict=True):
            variable = self._variables[number]
            if slots is None or not slots.is_divided(value):
                variable.assign(own)
                copies.remember(variable, _held(variable), value)
            else:
                sharded = ShardedValue(value, slots.gather_to_host, self._reading)
                # Keras reads `_value` in many places; only a property of the class sees all of them.
                variable.__class__ = _gathering_class(type(variable))
                variable._value = sharded
                copies.remember(variable, sharded, value)

    def _collect(self) -> None:
        """Gathers all sharded values; a collective call."""
        self.sync()
        for number in sorted(self.sharded):
            held = _held(self._variables[number])
            if isinstance(held, ShardedValue):
                held.fetch()

    def _note_changes(self) -> None:
        for variable in [v for i in self._lasting() if self._is_assigned(v := self._variables[i])]:
            path = zlib.crc32(variable.path.encode(), self._changes)
            self._changes = zlib.crc32(np.asarray(variable.value).tobytes(), path)

    def _lasting(self) -> list[int]:
        """Returns the numbers of the variables that are not a metric's."""
        metrics = {id(v) for v in self._model.metrics_variables}
        return [i for i, v in enumerate(self._variables) if id(v) not in metrics]


def _check_same_variables(group: str, variables: Sequence[Any], saved: Sequence[tuple[str, Any]]) -> None:
    here = [(v.path, str(np.dtype(v.dtype)), tuple(v.shape)) for v in variables]
    there = [(path, str(a.dtype), tuple(a.shape)) for path, a in saved]
    for number in range(max(len(here), len(there))):
        mine = here[number] if number < len(here) else None
        theirs = there[number] if number < len(there) else None
        if mine is None or theirs is None or mine[1:] != theirs[1:]:
            raise CheckpointError(
                f"A backup is restored into the model and the optimizer that it was made of. Variable {number} of "
                f"{group} is {_describe(theirs)} in the backup, and {_describe(mine)} in the model. Make the same "
                "model and compile it alike, or begin anew in another directory."
            )


def _describe(variable: tuple[str, str, tuple[int, ...]] | None) -> str:
    return "missing" if variable is None else f"{variable[0]} ({variable[1]}{list(variable[2])})"


# ---- Sharded values in Keras variables ----


class ShardedValue:
    """The value of a variable that replicas shard.

    Args:
        placed: The array on the replicas.
        fetch: Gathers such an array into the host's memory; a collective call.
        reading: The sync points at which any worker may read such values.
    """

    def __init__(
        self, placed: jax.Array, fetch: Callable[[jax.Array], np.ndarray], reading: OptimizerStateGather
    ) -> None:
        self._placed = placed
        self._fetch = fetch
        self._reading = reading
        self._whole: np.ndarray[Any, Any] | None = None

    def fetch(self) -> np.ndarray[Any, Any]:
        """Gathers the value; a collective call."""
        if self._whole is None:
            self._whole = self._fetch(self._placed)
        return self._whole

    def read(self) -> np.ndarray[Any, Any]:
        """Returns the gathered value, as soon as all workers have come to a sync point."""
        if self._whole is None:
            self._reading.read()
        return self.fetch()


def _held(variable: Variable) -> Any:
    """Returns the value that a variable holds, without gathering it."""
    held = vars(variable).get(_VALUE)
    # Without a value of its own, such as a variable that is computed from another one.
    return variable.value if held is None else held


def _read(variable: Variable) -> Any:
    """Returns the value of a variable; of a sharded one as numpy's array, which takes no memory of the devices."""
    held = _held(variable)
    return held.read() if isinstance(held, ShardedValue) else variable.value


@cache
def _gathering_class(kind: type[Any]) -> type[Any]:
    """Returns a class of variables like `kind`, whose value is gathered when it is read."""
    if isinstance(vars(kind).get(_VALUE), property):
        return kind

    def read(self: Any) -> Any:
        held = vars(self).get(_VALUE)
        # The gathered array stays on the devices no longer than its reader needs it.
        return jnp.asarray(held.read()) if isinstance(held, ShardedValue) else held

    def write(self: Any, value: ArrayLike) -> None:
        vars(self)[_VALUE] = value

    return type(kind.__name__, (kind,), {_VALUE: property(read, write), "__module__": kind.__module__})
