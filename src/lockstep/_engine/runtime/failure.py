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
from typing import Any

from lockstep._engine.runtime import whole_file
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


def report_to_launcher() -> None:
    """Has an exception that ends the program reported, where a launcher waits for that (`LOCKSTEP_ERROR_FILE`).

    Called when a strategy is made. What fails before, a launcher reads from stderr.
    """
    if os.environ.get(_ERROR_FILE):
        _excepthook.install()


def install() -> None:
    """Installs the hooks of a process that joins others, once: how its program ends is known before it has."""
    _excepthook.install()
    _exit.install()


def uninstall() -> None:
    """Takes the hooks back, once this process has left the others."""
    global _cause_of
    _excepthook.close()
    _exit.close()
    _listeners.clear()
    _cause_of = _itself


class _Hook:
    """A wrapper of a function of `sys`.

    Args:
        name: Of the function.
        wrap: Returns the wrapper, from the function.
    """

    def __init__(self, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._name, self._wrap = name, wrap
        self._theirs: Callable[..., Any] | None = None
        self._ours: Callable[..., Any] | None = None

    def install(self) -> None:
        """Puts the wrapper in the function's place, once."""
        if self._ours is not None:
            return
        theirs = getattr(sys, self._name)
        wrapped = self._wrap(theirs)

        @functools.wraps(theirs)
        def ours(*arguments: Any) -> Any:
            # A hook that the program has put over this one calls it for ever.
            return (wrapped if self._ours is ours else theirs)(*arguments)

        self._theirs, self._ours = theirs, ours
        setattr(sys, self._name, ours)

    def close(self) -> None:
        """Restores the function, unless the program has put another in its place since."""
        if self._ours is not None and getattr(sys, self._name) is self._ours:
            setattr(sys, self._name, self._theirs)
        self._theirs = self._ours = None


def _reporting(excepthook: Callable[..., Any]) -> Callable[..., Any]:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failed
        _failed = True
        excepthook(kind, error, trace)
        _end_with(kind, error, trace)

    return hook


def _noting(leave: Callable[..., Any]) -> Callable[..., Any]:
    def hook(status: object = None, /) -> None:
        global _exit_code
        _exit_code = 0 if status is None else status & 0xFF if isinstance(status, int) else 1
        leave(status)

    return hook


_excepthook = _Hook("excepthook", _reporting)
# Nothing else has the code of sys.exit: SystemExit comes to no excepthook, and the interpreter drops it before `atexit`
# runs, which is where a process leaves the others.
_exit = _Hook("exit", _noting)


def _end_with(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Tells the launcher, and then the listeners, of the exception that ends the program."""
    cause = _cause_of(error)
    if cause is not error:
        print(f"lockstep: {_task_name()} ends for this reason: {type(cause).__name__}: {cause}", file=sys.stderr)
    text = "".join(traceback.format_exception(kind, error, trace))
    write_error_file(_task_name(), type(cause).__name__, str(cause), text, isinstance(cause, PeerError))
    for listener in _listeners:
        listener(cause)


def _task_name() -> str:
    """The task that TF_CONFIG or the launcher names, for reports of failures before they were read."""
    from lockstep.cluster_resolver.internal import launcher_resolver

    with contextlib.suppress(LockstepError):  # It is being reported, or the program has its own description.
        if resolver := launcher_resolver(for_training=False):
            return str(resolver.task)
    try:
        task = json.loads(os.environ.get("TF_CONFIG", "{}"))["task"]
        return f"{task['type']} {task['index']}"
    except (ValueError, KeyError, TypeError):
        return "this process"
