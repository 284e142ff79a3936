"""How a failing task tells the launcher and the other tasks why it ends."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from lockstep.errors import PeerError

_ERROR_FILE = "LOCKSTEP_ERROR_FILE"
_AGREED = "__lockstep_agreed__"

_failed = False
_listeners: list[Callable[[BaseException], None]] = []


def mark_agreed(error: BaseException) -> BaseException:
    """Notes that every task raises an error for this cause at this point, so nobody waits for anybody."""
    with contextlib.suppress(AttributeError):  # Exceptions with __slots__ just count as local.
        setattr(error, _AGREED, True)
    return error


def is_agreed(error: BaseException) -> bool:
    """Whether `mark_agreed` was called on `error`."""
    return getattr(error, _AGREED, False)


def has_failed() -> bool:
    """Whether an exception has ended, or is about to end, this program."""
    return _failed


def on_failure(listener: Callable[[BaseException], None]) -> None:
    """Calls `listener` with the exception that ends the program, after it was printed."""
    _listeners.append(listener)


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
    with contextlib.suppress(OSError):
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(report, file)
        os.replace(partial, path)


def install() -> None:
    """Chains into `sys.excepthook`, once: a program that ends by an exception is reported."""
    previous = sys.excepthook
    if getattr(previous, "__lockstep__", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failed
        _failed = True
        previous(kind, error, trace)
        text = "".join(traceback.format_exception(kind, error, trace))
        write_error_file(_task_name(), kind.__name__, str(error), text, isinstance(error, PeerError))
        for listener in _listeners:
            listener(error)

    hook.__lockstep__ = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _task_name() -> str:
    """The task that TF_CONFIG names, for reports of failures before it was read."""
    try:
        task = json.loads(os.environ.get("TF_CONFIG", "{}"))["task"]
        return f"{task['type']} {task['index']}"
    except (ValueError, KeyError, TypeError):
        return "this process"
