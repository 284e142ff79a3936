"""Processes that are killed at a chosen point of what they do."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any


def dying_at(point: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns what wraps functions: at the call number `point` of any of them the process kills itself instead."""
    # One operation: threads that call at once get numbers of their own.
    numbers = itertools.count(1)

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(numbers) == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    return dying


def die_in_os(point: int, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Has the process kill itself at the call number `point` of these functions of `os`; returns what wraps more."""
    dying = dying_at(point)
    for name in names:
        setattr(os, name, dying(getattr(os, name)))
    return dying
