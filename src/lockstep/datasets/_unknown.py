"""A name that is not there."""

from __future__ import annotations

from lockstep.errors import ArgumentError


class UnknownNameError(ArgumentError, KeyError):
    """A name that does not exist; also a `KeyError`, which `Mapping.get` catches."""

    def __str__(self) -> str:
        """Returns the message, which `KeyError` would put in quotes."""
        return ValueError.__str__(self)
