"""The variables of an optimizer: those that belong to a trained variable, and others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from lockstep._model_fn.scope import ModelScope, demand


class OwnVariables:
    """The variables that an optimizer has made in one call of a model_fn.

    Their names are TensorFlow's: slots are called as the optimizer, "dense/kernel/Adam", and when that is taken
    "dense/kernel/Adam_1".

    Attributes:
        slots: By name of the slot, then by the trained variable's id.
        others: By name.
    """

    def __init__(self) -> None:
        self.slots: dict[str, dict[int, Any]] = {}
        self.others: dict[str, Any] = {}
        self._scope: Callable[[], ModelScope | None] = lambda: None

    def here(self, what: str) -> ModelScope:
        """Returns the running call of the model_fn; in a new one nothing is made yet."""
        scope = demand(what)
        if self._scope() is not scope:
            self.slots, self.others = {}, {}
            self._scope = weakref.ref(scope)
        return scope

    def slot(self, variable: Any, slot_name: str, op_name: str, initial: Callable[[Any], Any]) -> Any:
        """Returns a slot, made if it is not there.

        Args:
            variable: To which it belongs.
            slot_name: By which the optimizer knows it.
            op_name: Its name in checkpoints, after the variable's.
            initial: Computes its first value from that of `variable`.
        """
        scope = self.here("A slot of an optimizer")
        named = self.slots.setdefault(slot_name, {})
        if id(variable) not in named:
            start = f"{scope.key_of(variable)}/"
            key = free_key(scope, start + op_name)
            named[id(variable)] = scope.slot(variable, key.removeprefix(start), initial)
        return named[id(variable)]

    def other(self, name: str, initial: Callable[[], Any], dtype: Any) -> Any:
        """Returns a single number that belongs to no trained variable, made if it is not there."""
        scope = self.here("A variable of an optimizer")
        if name not in self.others:
            self.others[name] = scope.variable(free_key(scope, name), initial, (), dtype)
        return self.others[name]

    def all(self) -> list[Any]:
        """All of them, by name in checkpoints."""
        scope = self.here("Optimizer.variables")
        made = [v for named in self.slots.values() for v in named.values()]
        return sorted([*made, *self.others.values()], key=scope.key_of)


def free_key(scope: ModelScope, name: str) -> str:
    """Returns a name that no variable has yet: `name`, or "<name>_1" and so on."""
    taken = scope.variables
    key, number = name, 0
    while key in taken:
        number += 1
        key = f"{name}_{number}"
    return key
