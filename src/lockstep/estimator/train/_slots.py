"""The state of an optimizer: slots of trained variables, and other variables."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from lockstep._types import Array, ArrayLike, DType, PyTree, Variable
from lockstep.estimator._model_fn.scope import ModelScope, demand


class OptimizerState:
    """The variables of an optimizer in one call of a model_fn.

    Names are TensorFlow's: slots are named after the optimizer, "dense/kernel/Adam", and when that is taken
    "dense/kernel/Adam_1".

    Attributes:
        slots: Slots, by name, then by the trained variable's id.
        others: Other variables, by name.
    """

    def __init__(self) -> None:
        self.slots: dict[str, dict[int, Any]] = {}
        self.others: dict[str, PyTree] = {}
        # Weak: an optimizer that a program keeps must not keep the traced values of a model_fn's call.
        self._scope: Callable[[], ModelScope | None] = lambda: None

    def enter(self, caller: str) -> ModelScope:
        """Returns the current model_fn call; starts anew in a new one.

        Raises:
            StartupOrderError: Outside of a model_fn, with the name of the caller.
        """
        scope = demand(caller)
        if self._scope() is not scope:
            self.slots, self.others = {}, {}
            self._scope = weakref.ref(scope)
        return scope

    def slot(self, variable: Variable, slot_name: str, op_name: str, initial: Callable[[Array], Array]) -> Variable:
        """Returns a slot, created on first use.

        Args:
            variable: The trained variable.
            slot_name: The slot's name in the optimizer.
            op_name: The slot's name in checkpoints, after the variable's.
            initial: Computes the slot's first value from that of `variable`.
        """
        scope = self.enter("A slot of an optimizer")
        named = self.slots.setdefault(slot_name, {})
        if id(variable) not in named:
            start = f"{scope.key_of(variable)}/"
            key = unique_key(scope, start + op_name)
            named[id(variable)] = scope.slot(variable, key.removeprefix(start), initial)
        return named[id(variable)]

    def other(self, name: str, initial: Callable[[], ArrayLike], dtype: DType) -> Any:
        """Returns a scalar variable that belongs to no trained variable, created on first use."""
        scope = self.enter("A variable of an optimizer")
        if name not in self.others:
            self.others[name] = scope.variable(unique_key(scope, name), initial, (), dtype)
        return self.others[name]

    def all(self) -> list[Any]:
        """Returns all variables, sorted by name in checkpoints."""
        scope = self.enter("Optimizer.variables")
        made = [v for named in self.slots.values() for v in named.values()]
        return sorted([*made, *self.others.values()], key=scope.key_of)


def unique_key(scope: ModelScope, name: str) -> str:
    """Returns a name that no variable has yet: `name`, or "<name>_1", "<name>_2" and so on."""
    taken = scope.variables
    key, number = name, 0
    while key in taken:
        number += 1
        key = f"{name}_{number}"
    return key
