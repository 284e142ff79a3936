"""Root cause: the task that failed first, and the words for how all ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep._launch.child import Exit
from lockstep._launch.task import PREEMPTED, Task
from lockstep._launch.task_files import ErrorRecord, ProgressRecord
from lockstep._messages.reading import is_pointer

# A line of Python's traceback.
_FRAME = re.compile(r'  File ".*", line \d+')
# From nearest to the root cause to farthest.
_KILLED, _RAISED, _EXITED, _FOLLOWED = range(4)


@dataclass(frozen=True)
class Ended:
    """End of a task: its exit, its error report, and its last lines on stderr."""

    task: Task
    exit: Exit
    error: ErrorRecord | None = None
    tail: tuple[str, ...] = ()

    @property
    def uncaught(self) -> str | None:
        """The last line of a traceback on stderr, if the program failed before it made a strategy, and so reported."""
        is_traceback = self.error is None and self.exit.code == 1 and any(map(_FRAME.match, self.tail))
        # The last line but for the note below it, which is no part of the message.
        return next((line for line in reversed(self.tail) if not is_pointer(line)), None) if is_traceback else None

    @property
    def was_ended(self) -> bool:
        """Returns whether the launcher had asked the task to end before it did."""
        return self.exit.asked_at is not None

    @property
    def has_failed(self) -> bool:
        """Returns whether the task failed by itself: also if it reported its error and only then was asked to end."""
        if self.exit.code == 0 or (asked_at := self.exit.asked_at) is None:
            return self.exit.code != 0
        return self.error is not None and not self.error.secondary and self.error.time <= asked_at

    @property
    def was_preempted(self) -> bool:
        """Returns whether somebody other than the launcher asked the task to end, and nothing else went wrong."""
        return not self.was_ended and self.exit_code == PREEMPTED

    @property
    def exit_code(self) -> int:
        """The code that a shell would report; a task that failed but had to be ended counts as exited with 1."""
        if self.was_ended:
            return 1
        return self.exit.code if self.exit.code > 0 else 128 - self.exit.code

    @property
    def rank(self) -> int:
        """The distance of such an end from the root cause."""
        if self.error is not None and self.error.secondary:
            return _FOLLOWED
        # Killed from outside, which no other task does.
        if self.exit.code < 0 and self.exit.code != -signal.SIGABRT and not self.was_ended:
            return _KILLED
        if self.error is not None:
            return _RAISED
        # The runtime of a task aborts it when it loses the others.
        return _FOLLOWED if self.exit.code == -signal.SIGABRT else _EXITED

    @property
    def time(self) -> float:
        """The time of the failure, in seconds since the epoch."""
        return self.error.time if self.error is not None and self.rank == _RAISED else self.exit.at


@dataclass(frozen=True)
class Outcome:
    """Outcome of an attempt.

    Attributes:
        ends: Each task's end.
        cause: The root cause, if a task has failed.
        signal: The signal that has asked the launcher to end, if any.
        progress: How far each task that trains has come, as far as they have reported.
    """

    ends: Sequence[Ended]
    cause: Ended | None
    signal: int | None
    progress: Sequence[ProgressRecord]

    @property
    def code(self) -> int:
        """The exit code of the launcher."""
        if self.signal is not None:
            return 128 + self.signal
        return 0 if self.cause is None else self.cause.exit_code


def root_cause(ends: Collection[Ended]) -> Ended | None:
    """Returns the end that caused the others, or None if no task failed; an evaluator never makes workers fail."""
    # By rank before time: a consequence may be reported before its cause is noticed.
    failed = [end for end in ends if end.has_failed]
    return min(failed, key=lambda end: (end.task.is_evaluator, end.rank, end.time), default=None)


# Of the title, which should fit on a line or two of a terminal.
_MESSAGE_WIDTH = 160
_HINTS = {
    signal.SIGKILL: "Nobody but the kernel or a user sends SIGKILL: see whether the machine ran out of memory.",
    signal.SIGSEGV: "Native code crashed: PYTHONFAULTHANDLER=1 prints where.",
    signal.SIGBUS: "Native code could not reach its memory: see whether /dev/shm or the disk is full.",
}


def manner(code: int) -> str:
    """Returns how a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unnamed"
    return f"killed by signal {-code} ({name})"


def title(cause: Ended) -> str:
    """Returns which task failed first, and how."""
    return f"lockstep: {cause.task} failed first: {_own_manner(cause)}"


def preemption(cause: Ended, is_last: bool) -> str:
    """Returns that the tasks have ended because one was asked to, by somebody other than the launcher."""
    again = " Start them again to go on." if is_last else ""
    return f"A task was asked to end (SIGTERM), and all have ended: exit code {cause.exit_code}.{again}"


def details(cause: Ended, ends: Collection[Ended], log_dir: Path | None) -> str:
    """Returns what each of the other tasks did, and last what the first one said."""
    others = [_line(end) for end in ends if end is not cause]
    hint = [f"  {_HINTS[number]}" for number in _HINTS if cause.exit.code == -number and cause.error is None]
    logs = [] if log_dir is None else [f"  The output of every task is in {log_dir}."]
    if cause.error is not None:
        last = [f"The error of {cause.task}:", *cause.error.traceback.rstrip().splitlines()]
    elif cause.tail:
        last = [f"The last lines of {cause.task} on stderr:", *cause.tail]
    else:
        last = [f"{cause.task} wrote nothing to stderr."]
    return "\n".join([*hint, *others, *logs, "", *last])


def _line(end: Ended) -> str:
    if end.exit.code == 0:
        return f"  {end.task} had finished"
    if end.was_ended and not end.has_failed:
        return f"  {end.task} was ended by lockstep"
    consequence = " (a consequence)" if end.error is not None and end.error.secondary else ""
    return f"  {end.task}: {_own_manner(end)}{consequence}"


def _own_manner(end: Ended) -> str:
    how = "had to be ended" if end.was_ended else manner(end.exit.code)
    if end.error is None:
        return how
    return f"{how}, {end.error.type}: {end.error.headline[:_MESSAGE_WIDTH]}"
