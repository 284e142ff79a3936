"""A name that is not there."""

from __future__ import annotations

from lockstep.errors import ArgumentError


class UnknownNameError(ArgumentError, KeyError):
    """There is nothing of that name; also a `KeyError`, which `Mapping.get` waits for."""

    def __str__(self) -> str:
        """Returns the message, which `KeyError` would put in quotes."""
        return ValueError.__str__(self)
