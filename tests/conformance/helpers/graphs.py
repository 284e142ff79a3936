"""Graphs and sessions of tests that compute the same without them: `with tf.Graph().as_default()`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tests.conformance.absent import AbsentError
from tests.conformance.helpers.case import to_numpy

# Graphs whose block a test is in.
_open: list[Any] = []


class Graph:
    """Graph of a test that only keeps it apart from others."""

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Any]:
        _open.append(self)
        try:
            yield self
        finally:
            _open.pop()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AbsentError("graph", f"tf.Graph.{name}")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        """Does nothing."""


class Session:
    """Session of a test that evaluates values which are there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.graph = Graph()

    def run(self, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        if feed_dict:
            raise AbsentError("graph", "Session.run(feed_dict=)")
        return to_numpy(fetches)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Any]:
        yield self


class _Done:
    """Operation of a test that has nothing to do: variables have their values."""

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""


def _nothing(*args: Any, **kwargs: Any) -> _Done:
    return _Done()


NAMES: dict[str, Any] = {
    "Graph": Graph,
    "Session": Session,
    "get_default_graph": Graph,
    "reset_default_graph": lambda: None,
    "global_variables_initializer": _nothing,
    "local_variables_initializer": _nothing,
    "tables_initializer": _nothing,
    "initializers.global_variables": _nothing,
    "initializers.local_variables": _nothing,
    "initializers.tables_initializer": _nothing,
}


def _operations_alone(function: Any) -> Any:
    """Returns a function that gives an operation in a graph, which is none of lockstep's outside of a model_fn."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is None and _open:
            raise AbsentError("graph", f"an operation: tf.{function.__name__}")
        return result

    return call


def install(module: ModuleType) -> None:
    """Puts the names into compat's module, where it has none of its own."""
    module.no_op = _operations_alone(module.no_op)
    for name, value in NAMES.items():
        holder, last = module, name
        if "." in name:
            inner, last = name.split(".")
            holder = getattr(module, inner, None)
        if holder is not None and last not in vars(holder):
            try:
                getattr(holder, last)
            except AttributeError:
                setattr(holder, last, value)
