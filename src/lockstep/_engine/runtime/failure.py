"""Failure of a task: reports to the launcher and to the other tasks why it ends."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from lockstep._engine.runtime import launcher_files
from lockstep.errors import LockstepError, PeerError, Preempted

_AGREED = "__lockstep_agreed__"
_CAUSE = "__lockstep_cause__"

_failed = False
_exit_code = 0
_listeners: list[Callable[[BaseException], None]] = []
_cause_of: Callable[[BaseException], BaseException] | None = None


def mark_agreed(error: BaseException) -> BaseException:
    """Notes that every task raises an error for this cause at this point, so nobody waits for anybody."""
    with contextlib.suppress(AttributeError):  # Exceptions with __slots__ just count as local.
        setattr(error, _AGREED, True)
    return error


def is_agreed(error: BaseException) -> bool:
    """Returns whether all tasks raise `error` at this point: `mark_agreed` was called on it, or it is `Preempted`."""
    return isinstance(error, Preempted) or getattr(error, _AGREED, False)


def attach_cause(error: PeerError, record: dict[str, Any]) -> PeerError:
    """Returns `error` with the record of the failure of another task that caused it: others are sent that record."""
    setattr(error, _CAUSE, record)
    return error


def attached_cause(error: BaseException) -> dict[str, Any] | None:
    """Returns the record that `attach_cause` has attached to an error, or `None`."""
    return getattr(error, _CAUSE, None)


def has_failed() -> bool:
    """Returns whether an exception has ended, or is about to end, this program."""
    return _failed


def exit_code() -> int:
    """Returns the code that `sys.exit` was called with last, as a shell would see it; 0 without a call."""
    return _exit_code


def on_failure(listener: Callable[[BaseException], None]) -> None:
    """Calls `listener` with the exception that ends the program, after it was printed."""
    _listeners.append(listener)


def explain_with(cause_of: Callable[[BaseException], BaseException]) -> None:
    """Sets the function that returns the cause of the exception that ends the program, maybe the same."""
    global _cause_of
    _cause_of = cause_of


def report_to_launcher() -> None:
    """Reports an exception that ends the program from now on, where a launcher asks for it (`LOCKSTEP_ERROR_FILE`)."""
    if launcher_files.has_error_file():
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
    _cause_of = None


class _Hook:
    """Replaces the function `name` of `sys` by the one that `wrap` returns for it."""

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
            # A hook that the program has put over this one goes on to call it after `close`.
            return (wrapped if self._ours is ours else theirs)(*arguments)

        self._theirs, self._ours = theirs, ours
        setattr(sys, self._name, ours)

    def close(self) -> None:
        """Restores the function, unless the program has put another in its place since."""
        if self._ours is not None and getattr(sys, self._name) is self._ours:
            setattr(sys, self._name, self._theirs)
        self._theirs = self._ours = None


def _wrap_excepthook(excepthook: Callable[..., Any]) -> Callable[..., Any]:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _failed
        _failed = True
        excepthook(kind, error, trace)
        _report(kind, error, trace)

    return hook


def _wrap_exit(leave: Callable[..., Any]) -> Callable[..., Any]:
    def hook(status: object = None, /) -> None:
        global _exit_code
        _exit_code = 0 if status is None else status & 0xFF if isinstance(status, int) else 1
        leave(status)

    return hook


_excepthook = _Hook("excepthook", _wrap_excepthook)
# Nothing else has the code of sys.exit: SystemExit comes to no excepthook, and the interpreter drops it before `atexit`
# runs, which is where a process leaves the others.
_exit = _Hook("exit", _wrap_exit)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Reports the exception that ends the program to the launcher, and then to the listeners."""
    cause = error if _cause_of is None else _cause_of(error)
    if cause is not error:
        print(f"lockstep: {_task_name()} ends for this reason: {type(cause).__name__}: {cause}", file=sys.stderr)
    text = "".join(traceback.format_exception(kind, error, trace))
    launcher_files.write_error_file(_task_name(), type(cause).__name__, str(cause), text, isinstance(cause, PeerError))
    for listener in _listeners:
        listener(cause)


def _task_name() -> str:
    """Returns the name of this task, also where the cluster's description is what is wrong."""
    from lockstep.cluster_resolver.internal import launcher_resolver

    # An error of the resolver is being reported already, or the program has its own description.
    with contextlib.suppress(LockstepError):
        if resolver := launcher_resolver(for_training=False):
            return str(resolver.task)
    try:
        task = json.loads(os.environ.get("TF_CONFIG", "{}"))["task"]
        return f"{task['type']} {task['index']}"
    except (ValueError, KeyError, TypeError):
        return "this process"
