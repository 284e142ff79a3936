"""lockstep's errors that are Python's `TypeError`, too, where TensorFlow raises that class."""

from __future__ import annotations

from lockstep.errors import ArgumentError, UnsupportedError


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of the wrong type."""


class UnsupportedTypeError(UnsupportedError, TypeError):
    """An argument is of a type that this platform does not compute with."""
