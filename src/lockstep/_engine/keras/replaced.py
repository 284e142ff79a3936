"""Replaces a method of a class for as long as a step is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any


@contextlib.contextmanager
def replaced(owner: type, name: str, wrap: Callable[[Any], Any]) -> Generator[None]:
    """While open, `owner.name` is `wrap` of what it was."""
    before = getattr(owner, name)
    setattr(owner, name, wrap(before))
    try:
        yield
    finally:
        setattr(owner, name, before)
