"""Every exception that lockstep raises on purpose.

```
LockstepError
├── ClusterSpecError        the description of the cluster is wrong (also a ValueError)
├── InvalidValueError       a value is wrong (also a ValueError): one of the next two
│   ├── ArgumentError       an argument or a setting is wrong
│   │   └── UnsupportedError  this platform cannot do what an option asks for
│   └── InputError          the input pipeline broke, here or on another task
├── EndOfDataError          an iterator has no next element (also a StopIteration)
├── JoinError               this process could not become part of the cluster (also a RuntimeError)
│   ├── StartupOrderError   something ran before the strategy that must run after it
│   ├── AddressError        an address cannot be bound or resolved
│   └── MissingTaskError    a task did not arrive in time (also a TimeoutError)
├── MismatchError           the tasks of one cluster disagree about cluster, versions, model or call
├── PeerError               another task failed, left or stopped; its own error is the first cause
├── CancelledError          a scheduled function was not computed, because one before it has failed
├── NonFiniteError          the loss of a step, or a gradient of it, is NaN or infinite (also an ArithmeticError)
├── CardinalityError        a dataset has more or fewer elements than it was said to have (also a ValueError)
├── CheckpointError         a checkpoint, a model or an export cannot be written; or a checkpoint is broken, or is of
│                           another model (also a RuntimeError)
├── LaunchError             a worker of lockstep.launch has failed, or its time was over (also a RuntimeError)
└── DataNotFoundError       a data set is nowhere to be found (also a FileNotFoundError)
```

`Preempted` stands beside them: it is no error, but the way out of a program that was asked to end.

Catch `LockstepError` to handle all of them. Each message states the rule, what was received, and what to do next; the
note below it names its page, which `lockstep explain` prints.
"""

from __future__ import annotations

from lockstep._messages.pages import calling_module as _calling_module
from lockstep._messages.pages import page_of as _page_of
from lockstep._messages.reading import pointer as _pointer

__all__ = [
    "AddressError",
    "ArgumentError",
    "CancelledError",
    "CardinalityError",
    "CheckpointError",
    "ClusterSpecError",
    "DataNotFoundError",
    "EndOfDataError",
    "InputError",
    "InvalidValueError",
    "JoinError",
    "LaunchError",
    "LockstepError",
    "MismatchError",
    "MissingTaskError",
    "NonFiniteError",
    "PeerError",
    "Preempted",
    "StartupOrderError",
    "UnsupportedError",
]


class LockstepError(Exception):
    """Base class of every error that lockstep raises on purpose.

    Python prints a line below its message that says where to read on.

    Attributes:
        page: The page on errors of this kind, with their causes and remedies: `lockstep explain PAGE` prints it.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        # ArgumentError alone is raised in 700 places: the module that raises it says which page fits.
        self.page = _page_of(type(self), _calling_module(of=__name__))
        # A note, not a part of the message: other tasks quote messages, and programs compare them.
        self.add_note(_pointer(self.page))

    @property
    def message(self) -> str:
        """The message: what was wrong, and what to do."""
        return str(self)


class ClusterSpecError(LockstepError, ValueError):
    """The description of the cluster (TF_CONFIG, a `ClusterSpec`, scheduler variables) is wrong."""


class InvalidValueError(LockstepError, ValueError):
    """A value that the program gave, or that the data has, is not allowed."""


class ArgumentError(InvalidValueError):
    """An argument, an environment setting or a combination of them is wrong."""


class UnsupportedError(ArgumentError):
    """An option asks for something that this platform, or this combination, cannot do."""


class JoinError(LockstepError, RuntimeError):
    """The process could not become part of the cluster."""


class StartupOrderError(JoinError):
    """Something ran before the strategy was created that must run after it."""


class AddressError(JoinError):
    """An address of the cluster cannot be bound or resolved."""


class MissingTaskError(JoinError, TimeoutError):
    """A task of the cluster did not arrive within the time limit."""


class MismatchError(LockstepError, RuntimeError):
    """The tasks of one cluster disagree about the cluster, the versions, the model or the call."""


class PeerError(LockstepError, RuntimeError):
    """Another task failed, left or stopped making progress; the first cause is there, not here."""


class CancelledError(LockstepError):
    """A function that was scheduled is not computed, because one before it has failed."""


class NonFiniteError(LockstepError, ArithmeticError):
    """The loss of a step of training, or a gradient of it, is not finite: NaN or infinite."""


class EndOfDataError(LockstepError, StopIteration):
    """An iterator was asked for an element after the last one."""


class InputError(InvalidValueError):
    """The input pipeline broke, on this task or on another one."""


class CardinalityError(LockstepError, ValueError):
    """A dataset has another number of elements than `assert_cardinality` was given."""


class LaunchError(LockstepError, RuntimeError):
    """A worker of `lockstep.launch` has failed, or its time was over."""


class CheckpointError(LockstepError, RuntimeError):
    """A checkpoint, a model or an export cannot be written; or a checkpoint cannot be read, or is of another model."""


class DataNotFoundError(LockstepError, FileNotFoundError):
    """A data set is neither on this machine nor can it be downloaded."""


class Preempted(SystemExit):
    """Training was asked to end (SIGTERM on any task), and has done so: on all tasks after the same step.

    Whoever saves has saved by the time it leaves `fit` or `train`. It is no `Exception`, so that a program that does
    not know it unwinds and exits with its code, 143, by which a supervisor knows that the job is to be started again.

    Args:
        message: Who was asked, and after which step training ended.

    Source: the exit code of `tf.distribute.experimental.TerminationConfig` (`restart_exit_code`).
    """

    exit_code = 143

    def __init__(self, message: str) -> None:
        super().__init__(message)
        # What the interpreter exits with; it would print the message otherwise.
        self.code = self.exit_code
        self.message = message

    def __str__(self) -> str:
        """Returns the message."""
        return self.message
