"""The update rule of an optimizer with TensorFlow 1's interface, kept until the step program runs it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer

from lockstep._types import Array, PyTree, Variable

# Called as (optimizer, gradients, variables).
Apply = Callable[[Any, list[Array], list[Variable]], None]


class OptimizerRule:
    """The update rule of an optimizer, with its attributes as they are now.

    Args:
        optimizer: An optimizer that is prepared for its update.
        apply: Its update.

    Attributes:
        hyper: The traced values in the optimizer, by attribute.
    """

    def __init__(self, optimizer: object, apply: Apply) -> None:
        self._optimizer = optimizer
        self._apply = apply
        # Tracers of the model_fn must not outlive its trace, and the update is traced again, per replica. So traced
        # values leave the attributes for `hyper`, an input of the step program, and come back as that program's
        # tracers.
        self._split = {name: _Split(value) for name, value in vars(optimizer).items() if _is_traced(value)}
        self.hyper: dict[str, PyTree] = {name: split.traced for name, split in self._split.items()}
        for name in self._split:
            setattr(optimizer, name, None)

    def update(
        self, scope: object, gradients: list[Array], variables: list[Variable], hyper: dict[str, PyTree]
    ) -> None:
        """Updates the variables, on a copy of the optimizer, whose attributes hold no tracers afterwards."""
        optimizer = copy.copy(self._optimizer)
        for name, split in self._split.items():
            setattr(optimizer, name, split.merge(hyper[name]))
        self._apply(optimizer, gradients, variables)


class _Split:
    """A PyTree, split into traced leaves and the rest.

    Attributes:
        traced: The traced leaves.
    """

    def __init__(self, value: PyTree) -> None:
        leaves, self._treedef = jax.tree.flatten(value)
        self.traced = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
        # Tuples of one: None marks the place of a traced leaf, and is a value of others.
        self._rest = [None if isinstance(leaf, Tracer) else (leaf,) for leaf in leaves]

    def merge(self, traced: list[Array]) -> PyTree:
        """Returns the PyTree with other values in the places of the traced leaves."""
        values = iter(traced)
        return jax.tree.unflatten(self._treedef, [next(values) if r is None else r[0] for r in self._rest])


def _is_traced(value: PyTree) -> bool:
    """Returns whether an attribute is traced, or a list, tuple or dictionary with traced values."""
    if isinstance(value, Tracer):
        return True
    if isinstance(value, dict):
        return any(_is_traced(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(_is_traced(v) for v in value)
