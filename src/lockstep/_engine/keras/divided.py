"""Variables whose values lie in parts on the replicas, and are put together when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.zero1 import OptimizerStateGather

_VALUE = "_value"


class Parts:
    """Such a value.

    Args:
        placed: The array on the replicas.
        fetched: Returns the whole of such an array, in the host's memory; all tasks call it together.
        reading: What this task reads of all such values.
    """

    def __init__(
        self, placed: jax.Array, fetched: Callable[[jax.Array], np.ndarray], reading: OptimizerStateGather
    ) -> None:
        self._placed = placed
        self._fetched = fetched
        self._reading = reading
        self._whole: np.ndarray[Any, Any] | None = None

    def fetch(self) -> np.ndarray[Any, Any]:
        """Puts the value together; all tasks call it together."""
        if self._whole is None:
            self._whole = self._fetched(self._placed)
        return self._whole

    def read(self) -> np.ndarray[Any, Any]:
        """Returns the whole, as soon as all tasks are at a place where they may read."""
        if self._whole is None:
            self._reading.read()
        return self.fetch()


def show(variable: Any, parts: Parts) -> None:
    """Has a variable show such a value, as any other, to whoever reads it."""
    variable.__class__ = _reading_class(type(variable))
    variable._value = parts


def held_by(variable: Any, as_parts: bool = False) -> Any:
    """Returns the value of a variable; one in parts as numpy's array, or `as_parts` as it is."""
    held = vars(variable).get(_VALUE)
    if isinstance(held, Parts):
        return held if as_parts else held.read()
    return variable.value


@cache
def _reading_class(kind: type[Any]) -> type[Any]:
    """A class of variables like `kind`, which put a value together when it is read."""
    if isinstance(vars(kind).get(_VALUE), property):
        return kind

    def read(self: Any) -> Any:
        held = vars(self).get(_VALUE)
        # The whole has no place on the devices for longer than whoever reads it needs it.
        return jnp.asarray(held.read()) if isinstance(held, Parts) else held

    def write(self: Any, value: Any) -> None:
        vars(self)[_VALUE] = value

    return type(kind.__name__, (kind,), {_VALUE: property(read, write), "__module__": kind.__module__})
