"""Warnings that are worth giving once."""

from __future__ import annotations

import warnings

_given: set[str] = set()


def warn_once(message: str) -> None:
    """Warns, unless this process has given the same warning."""
    # Functions of a layer are traced again and again; one warning is enough.
    if message not in _given:
        _given.add(message)
        warnings.warn(message, UserWarning, stacklevel=3)
