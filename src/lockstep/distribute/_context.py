"""The strategy whose scope is open."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from functools import cache
from typing import TYPE_CHECKING

from lockstep.errors import StartupOrderError

if TYPE_CHECKING:
    from lockstep.distribute._strategy import Strategy

_open = threading.local()


def get_strategy() -> Strategy:
    """Returns the strategy whose scope is open on this thread, else the default one: one replica, no effect.

    Source: tf.distribute.get_strategy.
    """
    return _current() or _default()


def has_strategy() -> bool:
    """Whether a strategy's scope is open on this thread. Source: tf.distribute.has_strategy."""
    return _current() is not None


def in_cross_replica_context() -> bool:
    """Whether this code is written for all replicas together: inside a scope, outside of what runs per replica.

    Source: tf.distribute.in_cross_replica_context.
    """
    return has_strategy()


@contextlib.contextmanager
def entered(strategy: Strategy) -> Generator[None]:
    """Makes `strategy` the current one.

    Raises:
        StartupOrderError: If the scope of another strategy is open.
    """
    before = _current()
    if before is not None and before is not strategy:
        raise StartupOrderError(
            f"Scopes of different strategies cannot be nested. {type(before).__name__} is open; received "
            f"{type(strategy).__name__}. Leave the first scope before you enter the second."
        )
    _open.strategy = strategy
    try:
        yield
    finally:
        _open.strategy = before


def _current() -> Strategy | None:
    return getattr(_open, "strategy", None)


@cache
def _default() -> Strategy:
    from lockstep.distribute._default import DefaultStrategy

    return DefaultStrategy()
