"""Child processes: a running task, its process group, and how both end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lockstep._launch.task import PREEMPTED, Task
from lockstep._launch.warden import Warden
from lockstep.errors import LockstepError

_NEVER = float("inf")
# Of Linux's prctl; elsewhere the warden alone watches over the tasks.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)
_PREEMPTED = (PREEMPTED, -signal.SIGTERM)
# Seconds that a killed group is waited for: a process inside the kernel, or one that nobody reaps, can stay.
_DEATH = 2.0


@dataclass(frozen=True)
class Exit:
    """Exit of a task's process: `code` is negative for a signal, times are in seconds since the epoch.

    A task that the launcher had signalled before, at `asked_at`, ended because of that: its exit is no root cause.
    """

    code: int
    at: float
    asked_at: float | None = None


class Child:
    """Process of a task, which leads a group that its own child processes belong to.

    Its leader, the task itself, is asked to end with SIGTERM: what it has started may be needed for that. The group is
    killed after a grace; once the leader has gone, the rest is asked too, and killed after a short one.
    """

    def __init__(self, task: Task, process: subprocess.Popen[bytes], grace: float) -> None:
        self.task = task
        self.exit: Exit | None = None
        self.is_gone = False
        self.given_up = ""
        self._process = process
        self._grace = grace
        self._kill_at = self._give_up_at = _NEVER
        self._asked_at: float | None = None

    @property
    def group(self) -> int:
        """The number of the process group."""
        return self._process.pid

    @property
    def is_asked_to_end(self) -> bool:
        """Returns whether `end` was called."""
        return self._asked_at is not None

    @property
    def has_failed(self) -> bool:
        """Returns whether the task ended by itself and not well."""
        return self.exit is not None and self.exit.code != 0 and self.exit.asked_at is None

    @property
    def was_preempted(self) -> bool:
        """Returns whether somebody else has asked the task to end, and it has ended because of that."""
        return self.exit is not None and self.exit.asked_at is None and self.exit.code in _PREEMPTED

    @property
    def is_stopped(self) -> bool:
        """Returns whether a signal has stopped the task, and none has continued it."""
        if self.exit is not None or not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return False
        try:
            return os.waitid(os.P_PID, self.group, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # It has just ended.
            return False

    def end(self, now: float, grace: float | None = None) -> None:
        """Asks the task to end, once, and has its group killed after so many seconds."""
        if self._asked_at is None:
            self._asked_at = time.time()
            self._kill_at = now + (self._grace if grace is None else grace)
            if self.exit is None:
                self._process.send_signal(signal.SIGTERM)

    def kill(self, now: float) -> None:
        """Kills the group."""
        # Set, so that its exit counts as the launcher's doing.
        self._asked_at = self._asked_at or time.time()
        self._kill(now)

    def give_up(self, now: float, reason: str) -> None:
        """Kills the group of a task that does not go on, which is a failure of its own."""
        # Not counted as asked to end: its exit is a failure, and may be restarted.
        self.given_up = reason
        self._kill(now)

    def _kill(self, now: float) -> None:
        self._kill_at = _NEVER
        self._give_up_at = now + _DEATH
        self._signal(signal.SIGKILL)

    def kill_once(self, now: float) -> None:
        """Kills the group, unless that was done, or the task was asked to end."""
        if self._asked_at is None:
            self.kill(now)

    def poll(self, now: float) -> None:
        """Polls the process and its group; kills the group if that is due."""
        if self.exit is None:
            code = -signal.SIGKILL if now >= self._give_up_at else self._process.poll()
            if code is not None:
                self.exit = Exit(code, time.time(), self._asked_at)
                self._asked_at = self._asked_at or time.time()
                # The rest of the group outlives its leader for a grace at most, such as data-loading processes.
                self._kill_at = min(self._kill_at, now + self._grace)
                self._signal(signal.SIGTERM)
        if now >= self._kill_at:
            self.kill(now)
        if self.exit is not None:
            reap(self.group)
            # Signal 0 tells whether a process of the group is left.
            self.is_gone = now >= self._give_up_at or not self._signal(0)

    def _signal(self, number: int) -> bool:
        """Signals the group; returns whether there is one."""
        try:
            os.killpg(self.group, number)
        except (ProcessLookupError, PermissionError):  # macOS refuses to signal a group of zombies.
            return False
        return True


def spawn(
    command: Sequence[str], environment: Mapping[str, str], warden: Warden, columns: int | None
) -> tuple[subprocess.Popen[bytes], int, int]:
    """Starts `command` and returns its process and the reading ends of its stdout and stderr.

    With `columns`, stdout is a terminal of that width, on which programs animate their progress.
    """
    out, out_writer = os.pipe() if columns is None else _terminal(columns)
    err, err_writer = os.pipe()
    launcher = os.getpid()

    def prepare() -> None:
        # In the forked process, before it runs the command: no process exists that the warden does not know.
        warden.enlist()
        die_with(launcher)

    try:
        # A session of its own, so that its group can be killed, and Ctrl-C reaches the launcher alone.
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out_writer,
            stderr=err_writer,
            start_new_session=True,
            preexec_fn=prepare,
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.close(out)
        os.close(err)
        raise LockstepError(f"A task could not be started: {error}. Start fewer tasks, or free resources.") from error
    finally:
        os.close(out_writer)
        os.close(err_writer)
    return process, out, err


def _terminal(columns: int) -> tuple[int, int]:
    """Opens a pseudo-terminal that passes bytes on unchanged."""
    reader, writer = os.openpty()
    attributes = termios.tcgetattr(writer)
    # Output flags: no "\r\n" for "\n", so that logs hold the same bytes as with a pipe. Local flags: no echo.
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(writer, termios.TCSANOW, attributes)
    termios.tcsetwinsize(writer, (24, columns))
    return reader, writer


def die_with(launcher: int) -> None:
    """Has the calling process, a fork of the process `launcher`, killed when that ends; ends it if it has already."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The launcher may have ended between the fork and the call above.
    if os.getppid() != launcher:
        os._exit(128 + signal.SIGKILL)


@contextmanager
def adopting_orphans() -> Generator[None]:
    """Adopts (as a subreaper) processes that tasks leave: the first process of a container may never reap them."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _control(_PR_SET_CHILD_SUBREAPER, 0)


def reap(group: int) -> None:
    """Reaps the adopted processes of the group that have ended."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _control(option: int, value: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)
