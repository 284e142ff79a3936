"""Checks that several specs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

from lockstep.errors import ArgumentError

_T = TypeVar("_T")


def instances(values: object, kind: type[_T], name: str, example: str) -> tuple[_T, ...]:
    """Returns `values`, an iterable or `None`, as a tuple; raises `ArgumentError` unless all are of a class."""
    if values is not None and not isinstance(values, Iterable):
        raise ArgumentError(f"{name} must be a list of {kind.__name__}. Received: {values!r}. Example: [{example}]")
    elements: tuple[Any, ...] = () if values is None else tuple(values)
    for value in elements:
        if not isinstance(value, kind):
            raise ArgumentError(
                f"{name} must be a list of {kind.__name__}. Received in it: {value!r}. Example: [{example}]"
            )
    return elements


def hooks(values: object, name: str) -> tuple[Any, ...]:
    """Returns hooks as a tuple; raises `ArgumentError` unless all are `SessionRunHook`s."""
    # Imported late: hooks import modules that use these checks.
    from lockstep.estimator._hooks import SessionRunHook

    return instances(values, SessionRunHook, name, "tf.estimator.StopAtStepHook(num_steps=100)")


def function(value: object, name: str) -> Callable[..., Any]:
    """Returns `value`; raises `ArgumentError` unless it can be called."""
    if not callable(value):
        raise ArgumentError(
            f"{name} must be a function. Received: {value!r}. Example: {name}=lambda: lockstep.data.Dataset.range(8)"
        )
    return value


def steps(value: object, name: str) -> int | None:
    """Returns a number of steps; raises `ArgumentError` unless it is a whole number above 0, or `None`."""
    if value is None:
        return None
    if not isinstance(value, Integral) or value is True or value <= 0:
        raise ArgumentError(f"Must specify {name} > 0, a whole number, or None. Received: {value!r}.")
    return int(value)


def seconds(value: object, name: str) -> float:
    """Returns a time; raises `ArgumentError` unless it is a number of seconds from 0 up."""
    if not isinstance(value, Real) or not float(value) >= 0:
        raise ArgumentError(f"Must specify {name} >= 0, in seconds. Received: {value!r}.")
    return int(value) if isinstance(value, Integral) else float(value)
