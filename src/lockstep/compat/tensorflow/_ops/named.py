"""Names of results: in a model_fn, hooks ask for tensors by the name= of the operation that computed them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def running() -> Any:
    """Returns the call of a model_fn that runs on this thread, or `None`."""
    module = sys.modules.get("lockstep._model_fn.scope")
    return None if module is None else module.current()


def replica_scope() -> Any:
    """Returns the scope of the function of a replica that `strategy.run` traces on this thread, or `None`."""
    module = sys.modules.get("lockstep.distribute._variables")
    scope = None if module is None else module.current()
    return scope if scope is not None and scope.is_traced else None


def is_of_replica() -> bool:
    """Whether this is a function of a replica that `strategy.run` traces."""
    return replica_scope() is not None


def is_text_of_model(value: Any) -> bool:
    """Whether a value is text as a model_fn sees it: it stays on the host, which computes integers for it."""
    module = sys.modules.get("lockstep._model_fn.text")
    return module is not None and isinstance(value, module.Text)


def record(name: Any, value: Any) -> None:
    """Gives an array its name, in the name scopes that are open; outside of a model_fn names have no effect."""
    scope = running() if name is not None and isinstance(value, (jax.Array, np.ndarray)) else None
    if scope is None:
        return
    from keras.src.backend.common.name_scope import current_path

    path = current_path()
    scope.record(f"{path}/{name}" if path else str(name), value)


def all_of(namespace: dict[str, Any]) -> None:
    """Makes all functions of a module that take a `name` record their result under it.

    Args:
        namespace: The module's `globals()`; what its `__all__` lists is meant.
    """
    for public in namespace["__all__"]:
        function = namespace[public]
        if inspect.isfunction(function) and "name" in inspect.signature(function).parameters:
            namespace[public] = _recording(function)


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    place = list(inspect.signature(function).parameters).index("name")

    @functools.wraps(function)
    def recording(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        name = kwargs.get("name") if len(args) <= place else args[place]
        if name is not None:
            record(name, value)
        return value

    return recording
