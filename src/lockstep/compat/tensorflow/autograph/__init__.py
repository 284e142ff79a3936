"""tf.autograph: Python's conditions and loops over tensors, converted to code that can be compiled."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import inspect as _inspect
import textwrap as _textwrap
from collections.abc import Callable as _Callable
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._functions.conversion import converted_function as _converted_function
from lockstep.errors import ArgumentError as _ArgumentError

_LAZY = {
    "experimental": "lockstep.compat.tensorflow.autograph.experimental",
}

__all__ = ["experimental", "to_code", "to_graph"]


def to_graph(
    entity: _Callable[..., _Any], recursive: bool = True, experimental_optional_features: object = None
) -> _Callable[..., _Any]:
    """Returns a function whose conditions and loops over tensors can be compiled.

    Args:
        entity: A function; of one that was given to `tf.function`, its `python_function`.
        recursive: Whether functions that it calls are converted, too.
        experimental_optional_features: Must be None.

    Raises:
        ArgumentError: If there are optional features.
        ValueError: If the function has no source, or something in it cannot be converted.

    Source: tf.autograph.to_graph.
    """
    if experimental_optional_features is not None:
        raise _ArgumentError(
            "experimental_optional_features must be None: all of AutoGraph that is not experimental is there. Received "
            f"{experimental_optional_features!r:.60}. Leave it out."
        )
    return _converted_function(entity, recursive)


def to_code(entity: _Callable[..., _Any], recursive: bool = True, experimental_optional_features: object = None) -> str:
    """Returns the source of what `to_graph` returns. Source: tf.autograph.to_code."""
    return _textwrap.dedent(_inspect.getsource(to_graph(entity, recursive, experimental_optional_features)))


__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
