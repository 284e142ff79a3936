"""How a failing task tells the launcher and the other tasks why it ends."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from lockstep._runtime import whole_file
from lockstep.errors import LockstepError, PeerError, Preempted

_ERROR_FILE = "LOCKSTEP_ERROR_FILE"
_AGREED = "__lockstep_agreed__"
_BLAME = "__lockstep_blame__"

_failed = False
_exit_code = 0
_listeners: list[Callable[[BaseException], None]] = []


def _itself(error: BaseException) -> BaseException:
    return error


_cause_of: Callable[[BaseException], BaseException] = _itself


def mark_agreed(error: BaseException) -> BaseException:
    """Notes that every task raises an error for this cause at this point, so nobody waits for anybody."""
    with contextlib.suppress(AttributeError):  # Exceptions with __slots__ just count as local.
        setattr(error, _AGREED, True)
    return error


def is_agreed(error: BaseException) -> bool:
    """Whether `mark_agreed` was called on `error`, or it is `Preempted`, which all tasks raise alike."""
    return isinstance(error, Preempted) or getattr(error, _AGREED, False)


def blamed(error: PeerError, record: dict[str, Any]) -> PeerError:
    """Returns an error with the record of the failure that it is the consequence of, so that others hear of that."""
    setattr(error, _BLAME, record)
    return error


def blame_of(error: BaseException) -> dict[str, Any] | None:
    """Returns the record of another task's failure that `blamed` has given to an error."""
    return getattr(error, _BLAME, None)


def has_failed() -> bool:
    """Whether an exception has ended, or is about to end, this program."""
    return _failed


def exit_code() -> int:
    """The code that `sys.exit` was called with last, as a shell would see it; 0 without a call."""
    return _exit_code


def on_failure(listener: Callable[[BaseException], None]) -> None:
    """Calls `listener` with the exception that ends the program, after it was printed."""
    _listeners.append(listener)


def explain_with(cause_of: Callable[[BaseException], BaseException]) -> None:
    """Has `cause_of` say for the exception that ends the program which one is its cause, maybe the same."""
    global _cause_of
    _cause_of = cause_of


def write_error_file(task: str, kind: str, message: str, trace: str, secondary: bool) -> None:
    """Writes the report that `lockstep run` reads; the first report of a process stays."""
    path = os.environ.get(_ERROR_FILE)
    if not path or os.path.exists(path):
        return
    report = {
        "task": task,
        "time": time.time(),
        "type": kind,
        "message": message,
        "traceback": trace,
        "secondary": secondary,
    }
    whole_file.write(path, report)


def install() -> None:
    """Chains into `sys.excepthook` and `sys.exit`, once: how a program ends is known before it has."""
    previous = sys.excepthook
    if getattr(previous, "__lockstep__", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failed
        _failed = True
        previous(kind, error, trace)
        cause = _cause_of(error)
        if cause is not error:
            print(f"lockstep: {_task_name()} ends for this reason: {type(cause).__name__}: {cause}", file=sys.stderr)
        text = "".join(traceback.format_exception(kind, error, trace))
        write_error_file(_task_name(), type(cause).__name__, str(cause), text, isinstance(cause, PeerError))
        for listener in _listeners:
            listener(cause)

    hook.__lockstep__ = True  # type: ignore[attr-defined]
    sys.excepthook = hook
    _note_exits()


def _note_exits() -> None:
    """Nothing else tells the exit code to what runs at the end of a program."""
    previous = sys.exit

    @functools.wraps(previous)
    def leave(status: object = None, /) -> NoReturn:
        global _exit_code
        _exit_code = 0 if status is None else status & 0xFF if isinstance(status, int) else 1
        previous(status)  # type: ignore[arg-type]

    sys.exit = leave


def _task_name() -> str:
    """The task that TF_CONFIG or the launcher names, for reports of failures before they were read."""
    from lockstep.cluster_resolver._launchers import launcher_resolver

    with contextlib.suppress(LockstepError):  # It is being reported, or the program has its own description.
        if resolver := launcher_resolver(for_training=False):
            return str(resolver.task)
    try:
        task = json.loads(os.environ.get("TF_CONFIG", "{}"))["task"]
        return f"{task['type']} {task['index']}"
    except (ValueError, KeyError, TypeError):
        return "this process"
