"""The words for how tasks ended."""

from __future__ import annotations

import signal
from collections.abc import Collection
from pathlib import Path

from lockstep._launch.verdict import Ended

_MESSAGE_WIDTH = 160
_HINTS = {
    signal.SIGKILL: "Nobody but the kernel or a user sends SIGKILL: see whether the machine ran out of memory.",
    signal.SIGSEGV: "Native code crashed: PYTHONFAULTHANDLER=1 prints where.",
    signal.SIGBUS: "Native code could not reach its memory: see whether /dev/shm or the disk is full.",
}


def manner(code: int) -> str:
    """Say how a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    return f"killed by signal {-code} ({_signal_name(-code)})"


def title(cause: Ended) -> str:
    """Say which task failed first, and how."""
    return f"lockstep: {cause.task} failed first: {_own_manner(cause)}"


def preemption(cause: Ended, is_last: bool) -> str:
    """Say that the tasks have ended because one was asked to, by somebody other than the launcher."""
    again = " Start them again to go on." if is_last else ""
    return f"A task was asked to end (SIGTERM), and all have ended: exit code {cause.exit_code}.{again}"


def details(cause: Ended, ends: Collection[Ended], log_dir: Path | None) -> str:
    """Say what each of the other tasks did, and last what the first one said."""
    others = [_line(end) for end in ends if end is not cause]
    hint = [f"  {_HINTS[number]}" for number in _HINTS if cause.exit.code == -number and cause.error is None]
    logs = [] if log_dir is None else [f"  The output of every task is in {log_dir}."]
    return "\n".join([*hint, *others, *logs, "", *_last_words(cause)])


def _line(end: Ended) -> str:
    if end.exit.code == 0:
        return f"  {end.task} had finished"
    if end.was_ended and not end.has_failed:
        return f"  {end.task} was ended by lockstep"
    return f"  {end.task}: {_own_manner(end)}{_consequence(end)}"


def _own_manner(end: Ended) -> str:
    how = "had to be ended" if end.was_ended else manner(end.exit.code)
    if end.error is None:
        return how
    message = end.error.message.partition("\n")[0][:_MESSAGE_WIDTH]
    return f"{how}, {end.error.type}: {message}"


def _consequence(end: Ended) -> str:
    return " (a consequence)" if end.error is not None and end.error.secondary else ""


def _last_words(cause: Ended) -> list[str]:
    if cause.error is not None:
        return [f"The error of {cause.task}:", *cause.error.traceback.rstrip().splitlines()]
    if cause.tail:
        return [f"The last lines of {cause.task} on stderr:", *cause.tail]
    return [f"{cause.task} wrote nothing to stderr."]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"
