"""Releases memory of this process that malloc holds free."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable


def release_free_memory() -> None:
    """Gives memory that malloc holds free back to the system, where that is glibc's malloc."""
    if trim := _trim():
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    # Of the C library of this process; others, such as musl, have no such function.
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return getattr(library, "malloc_trim", None)
