"""Names of results, by which hooks of an Estimator find tensors, and the scopes that run on this thread."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._error_kinds import as_invalid_argument
from lockstep.compat.tensorflow._types import Argument


def model_fn_scope() -> Any:
    """Returns the call of a model_fn that runs on this thread, or `None`."""
    # Operations ask each time. A look into sys.modules imports no Estimator into programs that have none.
    module = sys.modules.get("lockstep.estimator._model_fn.scope")
    return None if module is None else module.current()


def replica_scope() -> Any:
    """Returns the scope of the function of a replica that `strategy.run` traces on this thread, or `None`."""
    module = sys.modules.get("lockstep.distribute._variables")
    scope = None if module is None else module.current()
    return scope if scope is not None and scope.is_traced else None


def is_of_replica() -> bool:
    """Returns whether `strategy.run` is tracing the function of a replica."""
    return replica_scope() is not None


def is_text_of_model(value: Tensor) -> bool:
    """Returns whether a value is text among a model_fn's features, for which the host computes integers."""
    module = sys.modules.get("lockstep._text")
    return module is not None and isinstance(value, module.Text)


def record(name: Any, value: Tensor) -> None:
    """Gives an array its name, in the name scopes that are open; outside of a model_fn names have no effect."""
    scope = model_fn_scope() if name is not None and isinstance(value, (jax.Array, np.ndarray)) else None
    if scope is None:
        return
    # Keras has no public reader of the open scopes.
    from keras.src.backend.common.name_scope import current_path

    path = current_path()
    scope.record(f"{path}/{name}" if path else str(name), value)


def name_of(value: Tensor) -> str:
    """Returns the name of a value in a model_fn, by which hooks find it; it gets one if it has none.

    Raises:
        AttributeError: If no model_fn runs and nothing is compiled: there TensorFlow's tensors have no names either.
    """
    scope = model_fn_scope()
    if scope is None and not isinstance(value, Tracer):
        raise AttributeError("A tensor has a name in a model_fn only. Give it one with tf.identity(x, name=...) there.")
    if scope is None:
        return "Tensor:0"
    # By identity: two tensors of equal values have two names.
    if not any(known is value for known in scope.recorded.values.values()):
        record("Tensor", value)
    return next((f"{name}:0" for name, known in scope.recorded.values.items() if known is value), "Tensor:0")


def record_names(namespace: dict[str, Any]) -> None:
    """Makes all functions of a module that take a `name` record their result under it.

    Args:
        namespace: The module's `globals()`; what its `__all__` lists is meant.
    """
    # Wrapped once, when the module is imported: the functions themselves need not know of name=.
    for public in namespace["__all__"]:
        function = namespace[public]
        if inspect.isfunction(function) and "name" in inspect.signature(function).parameters:
            namespace[public] = _record_result(function)


def _record_result(function: Callable[..., Any]) -> Callable[..., Any]:
    place = list(inspect.signature(function).parameters).index("name")

    @functools.wraps(function)
    def recording(*args: Argument, **kwargs: Argument) -> Any:
        try:
            value = function(*args, **kwargs)
        except (ValueError, TypeError, IndexError) as error:
            converted = as_invalid_argument(error, function)
            if converted is error:
                raise
            raise converted from error
        name = kwargs.get("name") if len(args) <= place else args[place]
        if name is not None:
            record(name, value)
        return value

    return recording
