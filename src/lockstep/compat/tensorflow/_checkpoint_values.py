"""Values of a checkpoint on their way to variables: those that are there, and those that are made later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex

import keras
import numpy as np
from keras.src.backend.common.stateless_scope import get_stateless_scope

from lockstep._types import Array, ArrayLike, Layer, Optimizer, Variable
from lockstep.compat.tensorflow._checkpoint_paths import (
    VALUE,
    is_group,
    is_trackable,
    optimizers_at,
    states_at,
    unbuilt_at,
    variables_at,
)
from lockstep.compat.tensorflow._ops.variable import Module
from lockstep.compat.tensorflow._types import Trackable
from lockstep.compat.tensorflow.keras._saves import WAITING, when_built
from lockstep.errors import CheckpointError

# Other paths of what is saved once, beside the states of iterators.
ALIASES = "lockstep.aliases"
_OPTIMIZER = "_lockstep_waiting"


@dataclass(frozen=True)
class Saved:
    """Holds the content of a checkpoint: arrays by paths of variables, and states of other objects by theirs."""

    arrays: Mapping[str, Array]
    states: Mapping[str, Any]

    @classmethod
    def of(cls, checkpoint: Any) -> Saved:
        """Returns the values of a checkpoint that was loaded."""
        arrays = {key.removesuffix(VALUE): array for key, array in checkpoint.arrays.items()}
        states = dict(checkpoint.extra)
        aliases: dict[str, str] = states.pop(ALIASES, {})
        return cls({**arrays, **{path: arrays[kept] for path, kept in aliases.items()}}, states)

    def below(self, path: str) -> dict[str, Array]:
        """Returns the arrays of an object, or of a variable, by their paths."""
        return {key: a for key, a in self.arrays.items() if key == path or key.startswith(f"{path}/")}

    def restore(self, path: str, value: Trackable) -> list[Layer]:
        """Gives an object the values that were saved under a path; returns the layers that wait for being built.

        Raises:
            CheckpointError: If nothing was saved under it, or a variable has no value of its shape there.
        """
        held = self.below(path)
        for name, part in states_at(path, value):
            if name not in self.states:
                raise self._missing(name)
            part.set_state(self.states[name])
        there = variables_at(path, value)
        if there and not held:
            raise self._missing(path)
        waiting = list(unbuilt_at(path, value))
        late = [place for place, _ in waiting] + [p for p, o in optimizers_at(path, value) if not o.built]
        self._assign(path, there, held, late)
        for place, layer in waiting:
            if self.below(place):
                self._when_built(place, layer)
        for place, optimizer in optimizers_at(path, value):
            if not optimizer.built and len(self.below(place)) > len(optimizer.variables):
                self._when_optimizer_built(place, optimizer)
        if held and len(there) < len(held):
            Waiting(self, path).put_on(value)
        return [layer for _, layer in waiting]

    def _assign(self, path: str, there: Mapping[str, Variable], held: Mapping[str, Array], late: list[str]) -> None:
        for key, variable in there.items():
            want = held.get(key)
            if want is None or tuple(variable.shape) != want.shape:
                if want is None and any(key.startswith(f"{place}/") for place in late):
                    continue
                raise CheckpointError(
                    f"A checkpoint is restored into objects like those that were saved. Received: {key}, of shape "
                    f"{None if want is None else want.shape} in the checkpoint, and {tuple(variable.shape)} here "
                    f"({len(held)} variables there, {len(there)} here). Make {path} as it was made before saving."
                )
        # After all have been checked: a checkpoint is restored whole, or not at all.
        for key, variable in there.items():
            if key in held:
                _set_value(variable, held[key])

    def _missing(self, path: str) -> CheckpointError:
        names = sorted({key.split("/")[0] for key in (*self.arrays, *self.states)})
        return CheckpointError(
            f"A checkpoint holds what it was saved with. Received: a request for {path!r}; it has {', '.join(names)}. "
            "Leave the object out, or restore it from another checkpoint."
        )

    def _when_built(self, path: str, layer: Layer) -> None:
        held = self.below(path)

        def restore() -> None:
            late = [place for place, _ in unbuilt_at(path, layer)]
            self._assign(path, variables_at(path, layer), held, late)

        when_built(layer, restore, {key + VALUE: array for key, array in held.items()})

    def _when_optimizer_built(self, path: str, optimizer: Optimizer) -> None:
        """Restores the rest of an optimizer once it is built."""
        held = self.below(path)
        # The class's method: the instance may have one that waits for another restore.
        build = type(optimizer).build.__get__(optimizer)
        setattr(optimizer, _OPTIMIZER, {key + VALUE: array for key, array in held.items()})

        def build_and_restore(variables: Any) -> None:
            del optimizer.build, vars(optimizer)[_OPTIMIZER]
            build(variables)
            self._assign(path, variables_at(path, optimizer), held, [])

        optimizer.build = build_and_restore


@dataclass(frozen=True)
class Waiting:
    """Values below a path that wait for objects which are assigned later."""

    saved: Saved
    path: str

    def give(self, name: str, value: Any) -> Any:
        """Gives an object that is assigned the values that wait for it; returns what is to be assigned."""
        path = f"{self.path}/{name}" if self.path else name
        if not is_trackable(value) or not (self.saved.below(path) or path in self.saved.states):
            return value
        if type(value) is list:
            value = _List(value, Waiting(self.saved, path))
        if variables_at(path, value) or list(states_at(path, value)) or isinstance(value, keras.layers.Layer):
            self.saved.restore(path, value)
        else:
            Waiting(self.saved, path).put_on(value)
        return value

    def put_on(self, value: Trackable) -> None:
        """Makes a module or a checkpoint, and those in it, give values to what is assigned to them."""
        if not isinstance(value, Module) and not is_group(value):
            return
        vars(value)["_waiting"] = self
        for name, part in list(vars(value).items()):
            if not name.startswith("_"):
                Waiting(self.saved, f"{self.path}/{name}" if self.path else name).put_on(part)


class _List(list[Any]):
    """A list whose new elements get the values that wait for them."""

    def __init__(self, values: Iterable[Any], waiting: Waiting) -> None:
        super().__init__(values)
        self._waiting = waiting

    def append(self, value: Any) -> None:
        """Adds an element."""
        super().append(self._waiting.give(str(len(self)), value))

    def extend(self, values: Iterable[Any]) -> None:
        """Adds elements."""
        for value in values:
            self.append(value)

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Adds an element at a place; only at the end it is the one that was saved there."""
        self.append(value) if int(index) == len(self) else super().insert(index, value)


def waiting_at(path: str, value: Trackable) -> dict[str, Array]:
    """Returns the values, by their keys in a file, that an object has yet to take."""
    found: dict[str, Array] = {}
    for _, layer in unbuilt_at(path, value):
        found |= vars(layer).get(WAITING, (None, {}))[1]
    for _, optimizer in optimizers_at(path, value):
        found |= vars(optimizer).get(_OPTIMIZER, {})
    return found


def _set_value(variable: Variable, array: ArrayLike) -> None:
    """Gives a variable its value; one that has none yet, its first."""
    # A variable of a functional scope that is not initialized yet takes it as its first value.
    if variable._value is None:
        variable._initializer = _constant(array)
    elif get_stateless_scope() is None:
        variable.assign(array)
    else:
        # In a stateless scope assign would record an update that is dropped when the scope ends.
        variable._direct_assign(np.asarray(array))


def _constant(array: ArrayLike) -> Callable[..., Any]:
    return lambda *_, **__: array
