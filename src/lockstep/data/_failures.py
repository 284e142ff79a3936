"""Errors of single elements, and the rule by which `ignore_errors` drops them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep._types import PyTree
from lockstep.errors import ArgumentError, DataNotFoundError, InputError, LockstepError, UnsupportedError


class InvalidElementError(InputError, ArgumentError):
    """An element has a value that a function refuses, as `tf.debugging` and an integer division by 0 do."""


class MissingElementError(InputError, DataNotFoundError):
    """A function did not find the file that an element names."""


class ProgramError(InputError):
    """A function failed for a reason that lies in the program or the machine, not in the element."""


# What TensorFlow reports as InvalidArgumentError.
_INVALID = (ArgumentError, ValueError, TypeError, ZeroDivisionError)
# Without the module or the name, or with more memory, the same element would do.
_OF_PROGRAM = (NameError, ImportError, MemoryError)
_POSTPONED = "postponed_error"
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


def wrap_error(error: Exception, message: str) -> Exception:
    """Returns the error to raise for an exception of a user's function, by the exception's kind.

    Args:
        error: The exception.
        message: Says which function failed at which element; the exception's own text is added.
    """
    if isinstance(error, LockstepError) and not isinstance(error, (InputError, ArgumentError, DataNotFoundError)):
        # Wrapped as an InputError, `ignore_errors` would drop it, and train on after a worker is lost.
        return error  # A peer that failed, or a cluster that disagrees: not a matter of the input.
    return _kind(error)(f"{message}: {type(error).__name__}: {error}")


def _kind(error: Exception) -> type[LockstepError]:
    if isinstance(error, UnsupportedError):
        return UnsupportedError
    if isinstance(error, (ProgramError, *_OF_PROGRAM)) or _OUT_OF_MEMORY in str(error):
        return ProgramError
    if isinstance(error, _INVALID):
        return InvalidElementError
    return MissingElementError if isinstance(error, FileNotFoundError) else InputError


def is_of_element(error: Exception) -> bool:
    """Returns whether an error is that of an element or a file, which may be left out; not of the program."""
    if isinstance(error, (ProgramError, *_OF_PROGRAM)):
        return False
    # Any exception of a user's function counts: nothing tells an expected ValueError from a mistake.
    return isinstance(error, (InputError, DataNotFoundError)) or not isinstance(error, LockstepError)


@dataclass(frozen=True)
class FailedElement:
    """An error that stands in the place of the element that failed.

    Attributes:
        error: What is raised when it is the element's turn.
    """

    error: Exception


class DeferredError:
    """An error that the next call raises, because the elements before it are returned first."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def defer(self, error: Exception) -> None:
        """Defers an error to the next call."""
        self._error = error

    def raise_deferred(self) -> None:
        """Raises the deferred error, once; without one does nothing."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def add_to_state(self, state: PyTree) -> Any:
        """Returns a cursor's state with the deferred error, if there is one."""
        return state if self._error is None else {_POSTPONED: str(self._error), "state": state}

    def take_from_state(self, state: PyTree) -> Any:
        """Returns the state without the error that `add_to_state` added, and defers that error again."""
        if not isinstance(state, dict) or _POSTPONED not in state:
            return state
        self._error = InputError(state[_POSTPONED])
        return state["state"]
