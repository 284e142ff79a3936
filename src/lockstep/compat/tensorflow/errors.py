"""tf.errors: lockstep's own errors, under the names that programs catch."""

from __future__ import annotations

# XLA reports memory that has run out by this class.
from jax.errors import JaxRuntimeError as ResourceExhaustedError

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.errors import ArgumentError as InvalidArgumentError
from lockstep.errors import CardinalityError as FailedPreconditionError
from lockstep.errors import DataNotFoundError as NotFoundError
from lockstep.errors import InputError as DataLossError
from lockstep.errors import LockstepError as OpError
from lockstep.errors import MissingTaskError as DeadlineExceededError
from lockstep.errors import PeerError as UnavailableError
from lockstep.errors import UnsupportedError as UnimplementedError

__all__ = ["AbortedError", "AlreadyExistsError", "CancelledError", "DataLossError", "DeadlineExceededError"]
__all__ += ["FailedPreconditionError", "InternalError", "InvalidArgumentError", "NotFoundError", "OpError"]
__all__ += ["OutOfRangeError", "PermissionDeniedError", "ResourceExhaustedError", "UnavailableError"]
__all__ += ["UnimplementedError", "UnknownError"]

AlreadyExistsError = FileExistsError
PermissionDeniedError = PermissionError
# The end of a data set: an iterator raises StopIteration.
OutOfRangeError = StopIteration
# What happened at another task, with the first cause.
AbortedError = UnavailableError


class CancelledError(OpError):
    """Error for `except` clauses: lockstep never raises it. Source: tf.errors.CancelledError."""


class InternalError(OpError):
    """Error for `except` clauses: lockstep never raises it. Source: tf.errors.InternalError."""


class UnknownError(OpError):
    """Error for `except` clauses: lockstep never raises it. Source: tf.errors.UnknownError."""


__getattr__ = _getter(__name__)
