"""SIGTERM handler while a run is open.

Python calls a signal's handler between two of its instructions, which a main thread inside a compilation or a
collective operation does not come to for minutes. The number of the signal is therefore also written into a pipe, from
the signal itself, and a thread of ours reads it there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

_BYTE = bytes([signal.SIGTERM])


class _Watch:
    """The handler of this process, and the thread that reads the numbers of signals from a pipe."""

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        self._callback: Callable[[], None] | None = None
        self._previous: Any = None
        self._previous_pipe = -1
        self._error: BaseException | None = None
        self._ignored_until = 0.0
        self._is_prepared = False
        self._mask_before_fork: set[int | signal.Signals] | None = None

    def prepare(self) -> None:
        """Registers the hooks for the exit of this process, and for its forks, once."""
        # A process that joins others calls it before it registers its shutdown: exit hooks run in reverse order.
        if not self._is_prepared:
            self._is_prepared = True
            os.register_at_fork(
                before=self._block_in_fork, after_in_parent=self._unblock, after_in_child=self.reset_in_fork
            )
            atexit.register(self.ignore_at_exit)

    @contextlib.contextmanager
    def notify(self, callback: Callable[[], None]) -> Generator[None]:
        """Calls `callback`, on a thread, when SIGTERM comes while this is open, besides the program's own handler."""
        if not self._can_handle():
            yield
            return
        self.prepare()  # A run of a process that trains alone comes here first.
        if self._pipe is None:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            reader = self._pipe[0]
            threading.Thread(target=self._read_pipe, args=(reader,), name="lockstep-sigterm", daemon=True).start()
        writer = self._pipe[1]
        self._callback, self._error = callback, None
        previous = signal.signal(signal.SIGTERM, self._handle)
        if previous != self._handle:  # It stays in place after a run that was asked to end.
            self._previous = previous
        self._previous_pipe = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            self._close(writer)
        if self._error is not None:
            raise self._error

    def ignore_for(self, seconds: float) -> None:
        """Ignores further signals for so long, also when no run is open: this process is ending well."""
        self._ignored_until = time.monotonic() + seconds

    def ignore_at_exit(self) -> None:
        """Ignores SIGTERM at the end of the program, if it is ignored now."""
        # The interpreter restores the default handlers before it has ended.
        if time.monotonic() < self._ignored_until and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def reset_in_fork(self) -> None:
        """Drops what a fork has inherited: the pipe is the parent's, and so is the run."""
        if self._callback is not None:
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, self._previous)
        self._callback = self._pipe = None
        self._unblock()

    def _block_in_fork(self) -> None:
        # A pool may end its child before `reset_in_fork` has run there: the signal would be written into the parent's
        # pipe, and end the parent's training. It waits in the child instead.
        if self._callback is not None:
            self._mask_before_fork = set(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))

    def _unblock(self) -> None:
        if self._mask_before_fork is not None:
            mask, self._mask_before_fork = self._mask_before_fork, None
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _can_handle(self) -> bool:
        # Not in a nested run, nor on another thread; a signal that is ignored, or handled by C code, is left alone.
        return (
            self._callback is None
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) not in (signal.SIG_IGN, None)
        )

    def _read_pipe(self, reader: int) -> None:
        while data := os.read(reader, 64):
            if self._previous_pipe >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._previous_pipe, data)
            callback = self._callback
            if _BYTE in data and callback is not None:
                callback()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._callback is None:
            self._handle_between_runs(number, frame)
            return
        if self._pipe is not None:  # The program may have set another wakeup descriptor since.
            os.write(self._pipe[1], _BYTE)
        if callable(self._previous):
            try:
                self._previous(number, frame)
            except BaseException as error:
                self._error = error  # Raised where the run ends, so that it ends on all tasks at the same step.

    def _handle_between_runs(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() < self._ignored_until:
            return
        if callable(self._previous):
            self._previous(number, frame)
            return
        signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _close(self, writer: int) -> None:
        self._callback = None
        current = signal.set_wakeup_fd(self._previous_pipe)
        if current not in (writer, -1):  # The program has set its own meanwhile.
            signal.set_wakeup_fd(current)
        self._previous_pipe = -1
        is_ignored = time.monotonic() < self._ignored_until
        if signal.getsignal(signal.SIGTERM) == self._handle and not is_ignored:
            signal.signal(signal.SIGTERM, self._previous)


_watch = _Watch()

prepare = _watch.prepare
notify = _watch.notify
ignore_for = _watch.ignore_for


def restore_python_handler() -> None:
    """Puts back what Python has for SIGTERM: jax's preemption service replaces it by one that does nothing."""
    if threading.current_thread() is not threading.main_thread():
        return
    with contextlib.suppress(TypeError, ValueError):  # Not set from Python.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
