"""Which task failed first: the others failed because of it."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection
from dataclasses import dataclass

from lockstep._launch.child import Exit
from lockstep._launch.error_file import ErrorRecord
from lockstep._launch.task import PREEMPTED, Task

_FRAME = re.compile(r'  File ".*", line \d+')
_KILLED, _RAISED, _EXITED, _FOLLOWED = range(4)


@dataclass(frozen=True)
class Ended:
    """A task that has ended, what it reported about it, and its last lines on stderr."""

    task: Task
    exit: Exit
    error: ErrorRecord | None = None
    tail: tuple[str, ...] = ()

    @property
    def uncaught(self) -> str | None:
        """The last line of a traceback on stderr, if the program failed before it made a strategy, and so reported."""
        is_traceback = self.error is None and self.exit.code == 1 and any(map(_FRAME.match, self.tail))
        return self.tail[-1] if is_traceback else None

    @property
    def was_ended(self) -> bool:
        """Whether the launcher had asked the task to end before it did."""
        return self.exit.asked_at is not None

    @property
    def has_failed(self) -> bool:
        """Whether the task failed by itself: also if it reported its error and only then was asked to end."""
        return self.exit.code != 0 and (self.exit.asked_at is None or self._reported_before(self.exit.asked_at))

    @property
    def was_preempted(self) -> bool:
        """Whether somebody other than the launcher asked the task to end, and nothing else went wrong."""
        return not self.was_ended and self.exit_code == PREEMPTED

    @property
    def exit_code(self) -> int:
        """What a shell would report; a task that failed but had to be ended counts as exited with 1."""
        if self.was_ended:
            return 1
        return self.exit.code if self.exit.code > 0 else 128 - self.exit.code

    @property
    def rank(self) -> int:
        """How near to the first cause such an end is, lowest first."""
        if self.error is not None and self.error.secondary:
            return _FOLLOWED
        if self.exit.code < 0 and self.exit.code != -signal.SIGABRT and not self.was_ended:
            return _KILLED
        if self.error is not None:
            return _RAISED
        # The runtime of a task aborts it when it loses the others.
        return _FOLLOWED if self.exit.code == -signal.SIGABRT else _EXITED

    @property
    def time(self) -> float:
        """When the failure happened, in seconds since the epoch."""
        return self.error.time if self.error is not None and self.rank == _RAISED else self.exit.at

    def _reported_before(self, moment: float) -> bool:
        return self.error is not None and not self.error.secondary and self.error.time <= moment


def first_cause(ends: Collection[Ended]) -> Ended | None:
    """Return the end that caused the others, or None if no task failed; an evaluator never makes workers fail."""
    failed = [end for end in ends if end.has_failed]
    return min(failed, key=lambda end: (end.task.is_evaluator, end.rank, end.time), default=None)
