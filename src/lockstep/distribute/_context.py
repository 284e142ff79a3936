"""The strategy whose scope is open, and the replica whose function runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from functools import cache
from typing import TYPE_CHECKING

from lockstep.errors import StartupOrderError

if TYPE_CHECKING:
    from lockstep.distribute._replica_context import ReplicaContext
    from lockstep.distribute._strategy import Strategy

_open = threading.local()
_default_factories: list[Callable[[], Strategy]] = []


def get_strategy() -> Strategy:
    """Returns the strategy whose scope is open on this thread, else the default one: one replica, no effect.

    Source: tf.distribute.get_strategy.
    """
    return _current() or default()


def has_strategy() -> bool:
    """Whether a strategy's scope is open on this thread. Source: tf.distribute.has_strategy."""
    return _current() is not None


def in_cross_replica_context() -> bool:
    """Whether this code is written for all replicas together: inside a scope, outside of what runs per replica.

    Source: tf.distribute.in_cross_replica_context.
    """
    return replica() is None and (has_strategy() or is_merging())


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


def replica() -> ReplicaContext | None:
    """Returns the replica whose function runs on this thread."""
    return getattr(_open, "replica", None)


@contextlib.contextmanager
def in_replica(context: ReplicaContext) -> Generator[None]:
    """Runs what follows for one replica."""
    with _kept():
        _open.replica, _open.is_merging = context, False
        yield


@contextlib.contextmanager
def cross_replica() -> Generator[None]:
    """Runs what follows for all replicas together, in the midst of their functions."""
    with _kept():
        _open.replica, _open.is_merging = None, True
        yield


def is_merging() -> bool:
    """Whether this is what a replica's function has called for all replicas."""
    return getattr(_open, "is_merging", False)


@contextlib.contextmanager
def _kept() -> Generator[None]:
    before = replica(), is_merging()
    try:
        yield
    finally:
        _open.replica, _open.is_merging = before


def _current() -> Strategy | None:
    return getattr(_open, "strategy", None)


def register_default(make: Callable[[], Strategy]) -> None:
    """Sets how the default strategy is made. Strategies import this module, so it cannot import one itself."""
    _default_factories[:] = [make]


@cache
def default() -> Strategy:
    """Returns the strategy of what runs outside of any scope."""
    (make,) = _default_factories
    return make()
