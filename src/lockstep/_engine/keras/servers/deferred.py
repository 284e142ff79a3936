"""Values of Keras variables that are fetched when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp

from lockstep._types import Array

_VALUE = "_value"


class Deferred:
    """A value that is elsewhere.

    Args:
        read: Returns it.
    """

    def __init__(self, read: Callable[[], Array]) -> None:
        self.read = read


def defer(variable: Any, read: Callable[[], Array]) -> Deferred:
    """Has a variable fetch its value when it is read, until something is assigned to it; returns its mark."""
    variable.__class__ = deferring_class(type(variable))
    mark = Deferred(read)
    variable._value = mark
    return mark


def defer_again(variable: Any, mark: Deferred) -> None:
    """Has a variable fetch its value again, after something was assigned to it."""
    variable._value = mark


def held_value(variable: Any) -> Any:
    """Returns what a variable holds: an array, or a `Deferred` that is not fetched by this."""
    return vars(variable).get(_VALUE)


@cache
def deferring_class(kind: type[Any]) -> type[Any]:
    """Returns a class of variables like `kind`, whose value may be deferred."""
    if isinstance(getattr(kind, _VALUE, None), property):
        return kind

    def read(self: Any) -> Any:
        value = vars(self).get(_VALUE)
        return jnp.asarray(value.read()) if isinstance(value, Deferred) else value

    def write(self: Any, value: Any) -> None:
        vars(self)[_VALUE] = value

    # Keras reads `_value` in many places; only a property of the class sees all of them.
    return type(kind.__name__, (kind,), {_VALUE: property(read, write), "__module__": kind.__module__})
