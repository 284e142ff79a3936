"""lockstep's errors that are also Python's, where programs expect one or the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.errors import ArgumentError, UnsupportedError

# Errors that come from their code tell of an operation's arguments; others are of a program's own functions.
_LIBRARIES = {"jax", "jaxlib", "lockstep", "numpy"}


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of the wrong type."""


class ArgumentIndexError(ArgumentError, IndexError):
    """An index is out of range."""


class UnsupportedTypeError(UnsupportedError, TypeError):
    """An argument is of a type that this platform does not compute with."""


_KINDS = {ValueError: ArgumentError, TypeError: ArgumentTypeError, IndexError: ArgumentIndexError}


def as_invalid_argument(error: Exception, function: Callable[..., Any]) -> Exception:
    """Returns an error of numpy or JAX about an operation's arguments as lockstep's; others as they are.

    TensorFlow raises InvalidArgumentError for shapes and types that do not go together.
    """
    # By their exact class: a class of the user's, or of JAX, says more than these.
    kind, trace = _KINDS.get(type(error)), error.__traceback__
    if kind is None or trace is None or trace.tb_next is None:
        # Raised by the call itself: an argument that the function does not have.
        return error
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    if module.partition(".")[0] not in _LIBRARIES:
        return error
    return kind(f"tf.{function.__name__} was given arguments that do not go together: {error}")
