"""An optimizer, kept for the step program: what was traced apart from the rest."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer

# Carries out an update: (optimizer, gradients, variables).
CarryOut = Callable[[Any, list[Any], list[Any]], None]


class OptimizerRule:
    """The update of an optimizer as it is now.

    When the update runs, what was traced in the model_fn is dead. So every traced value in the optimizer's attributes
    is given to the step program, and is put back in its place then.

    Args:
        optimizer: With everything computed that its update needs.
        carry_out: Its update.

    Attributes:
        hyper: The traced values, by attribute.
    """

    def __init__(self, optimizer: Any, carry_out: CarryOut) -> None:
        self._optimizer = optimizer
        self._carry_out = carry_out
        self._split = {name: _Split(value) for name, value in vars(optimizer).items() if _is_traced(value)}
        self.hyper: dict[str, Any] = {name: split.traced for name, split in self._split.items()}
        for name in self._split:
            setattr(optimizer, name, None)

    def update(self, scope: Any, gradients: list[Any], variables: list[Any], hyper: dict[str, Any]) -> None:
        """Updates the variables."""
        optimizer = copy.copy(self._optimizer)
        for name, split in self._split.items():
            setattr(optimizer, name, split.joined(hyper[name]))
        self._carry_out(optimizer, gradients, variables)


class _Split:
    """A structure in which some leaves are traced.

    Attributes:
        traced: Those leaves.
    """

    def __init__(self, value: Any) -> None:
        leaves, self._treedef = jax.tree.flatten(value)
        self.traced = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
        self._rest = [None if isinstance(leaf, Tracer) else (leaf,) for leaf in leaves]

    def joined(self, traced: list[Any]) -> Any:
        """Returns the structure with other values in the places of the traced leaves."""
        values = iter(traced)
        return jax.tree.unflatten(self._treedef, [next(values) if r is None else r[0] for r in self._rest])


def _is_traced(value: Any) -> bool:
    """Whether there are traced values in an attribute: itself, or in lists, tuples and dictionaries."""
    if isinstance(value, Tracer):
        return True
    if isinstance(value, dict):
        return any(_is_traced(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(_is_traced(v) for v in value)
