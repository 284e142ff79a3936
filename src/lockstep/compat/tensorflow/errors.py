"""tf.errors: lockstep's own errors, under the names that programs catch, with what TensorFlow's have."""

from __future__ import annotations

from typing import Any

# XLA reports memory that has run out by this class.
from jax.errors import JaxRuntimeError as ResourceExhaustedError

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.errors import ArgumentError as _ArgumentError
from lockstep.errors import CancelledError as CancelledError
from lockstep.errors import CardinalityError as FailedPreconditionError
from lockstep.errors import DataNotFoundError as NotFoundError
from lockstep.errors import EndOfDataError as OutOfRangeError
from lockstep.errors import InputError as DataLossError
from lockstep.errors import InvalidValueError as InvalidArgumentError
from lockstep.errors import LockstepError as OpError
from lockstep.errors import MissingTaskError as DeadlineExceededError
from lockstep.errors import PeerError as UnavailableError
from lockstep.errors import UnsupportedError as UnimplementedError

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = range(8)
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = range(8, 15)
DATA_LOSS, UNAUTHENTICATED = 15, 16

__all__ = ["ABORTED", "ALREADY_EXISTS", "AbortedError", "AlreadyExistsError", "CANCELLED", "CancelledError"]
__all__ += ["DATA_LOSS", "DEADLINE_EXCEEDED", "DataLossError", "DeadlineExceededError", "FAILED_PRECONDITION"]
__all__ += ["FailedPreconditionError", "INTERNAL", "INVALID_ARGUMENT", "InternalError", "InvalidArgumentError"]
__all__ += ["NOT_FOUND", "NotFoundError", "OK", "OUT_OF_RANGE", "OpError", "OperatorNotAllowedInGraphError"]
__all__ += ["OutOfRangeError", "PERMISSION_DENIED", "PermissionDeniedError", "RESOURCE_EXHAUSTED"]
__all__ += ["ResourceExhaustedError", "UNAUTHENTICATED", "UNAVAILABLE", "UNIMPLEMENTED", "UNKNOWN"]
__all__ += ["UnauthenticatedError", "UnavailableError", "UnimplementedError", "UnknownError"]

# What happened at another task, with the first cause.
AbortedError = UnavailableError


class AlreadyExistsError(OpError, FileExistsError):
    """A file exists that was to be made. Source: tf.errors.AlreadyExistsError."""


class PermissionDeniedError(OpError, PermissionError):
    """The system does not allow it. Source: tf.errors.PermissionDeniedError."""


class OperatorNotAllowedInGraphError(_ArgumentError, TypeError):
    """Python cannot decide by a value that compiled code computes.

    Source: tf.errors.OperatorNotAllowedInGraphError.
    """


class InternalError(OpError):
    """Error for `except` clauses: lockstep never raises it. Source: tf.errors.InternalError."""


class UnauthenticatedError(OpError):
    """Error for `except` clauses: lockstep never raises it. Source: tf.errors.UnauthenticatedError."""


class UnknownError(OpError):
    """Error for `except` clauses: lockstep never raises it. Source: tf.errors.UnknownError."""


# Py_TPFLAGS_HEAPTYPE: a class that a class statement made.
_HEAP_TYPE = 1 << 9
# The innermost class that is named here counts.
_CODES: dict[type[Exception], int] = {
    OutOfRangeError: OUT_OF_RANGE,
    UnimplementedError: UNIMPLEMENTED,
    InvalidArgumentError: INVALID_ARGUMENT,
    FailedPreconditionError: FAILED_PRECONDITION,
    NotFoundError: NOT_FOUND,
    DeadlineExceededError: DEADLINE_EXCEEDED,
    UnavailableError: UNAVAILABLE,
    AlreadyExistsError: ALREADY_EXISTS,
    PermissionDeniedError: PERMISSION_DENIED,
    CancelledError: CANCELLED,
    InternalError: INTERNAL,
    UnauthenticatedError: UNAUTHENTICATED,
    UnknownError: UNKNOWN,
}


def _code_of(error: Exception) -> int:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), UNKNOWN)


def _built_in_base(kind: type[Any]) -> type[Any]:
    """Returns the class of Python's that an object of this class is laid out as: the only one that may allocate it."""
    base: Any = kind
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    return base


def _give_tensorflows_attributes(cls: Any) -> None:
    """Gives lockstep's errors `op`, `node_def` and `error_code`, and TensorFlow's arguments `(node_def, op, message)`.

    The classes must be lockstep's own: `except` clauses ask for them, and lockstep raises them.
    """

    # Not in __init__: it finds the page of an error by the code that calls it, and would find this module.
    def __new__(kind: Any, *arguments: object, **named: object) -> Any:
        error = _built_in_base(kind).__new__(kind, *arguments, **named)
        # lockstep gives one text; TensorFlow's programs an operation's definition, the operation, and the text. A
        # class with arguments of its own writes its text itself.
        has_three = len(arguments) in (3, 4) and isinstance(arguments[2], str) and not isinstance(arguments[0], str)
        if has_three and kind.__init__ is cls.__init__:
            error.node_def, error.op, error.tensorflows_text = arguments[:3]
        return error

    def __str__(self: Any) -> str:
        return super(cls, self).__str__() if self.tensorflows_text is None else str(self.tensorflows_text)

    cls.__new__, cls.__str__ = __new__, __str__
    cls.op = cls.node_def = cls.tensorflows_text = None
    cls.error_code = property(_code_of, doc="TensorFlow's number of this kind of error.")
    cls.experimental_payloads = property(lambda self: {}, doc="An empty dict: errors carry no more than their text.")


_give_tensorflows_attributes(OpError)
__getattr__ = _getter(__name__)
