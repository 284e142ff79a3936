"""SIGTERM while a run is open.

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
    """The handler of this process, and the thread that hears of signals."""

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        self._tell: Callable[[], None] | None = None
        self._previous: Any = None
        self._previous_pipe = -1
        self._held: BaseException | None = None
        self._deaf_until = 0.0
        self._is_prepared = False

    def prepare(self) -> None:
        """Registers the end of this process, and its forks', once.

        A process that joins others calls it before it registers how it leaves them: what comes last at its end is
        registered first.
        """
        if not self._is_prepared:
            self._is_prepared = True
            os.register_at_fork(after_in_child=self.forget)
            atexit.register(self.stay_deaf_to_the_end)

    @contextlib.contextmanager
    def open(self, tell: Callable[[], None]) -> Generator[None]:
        """While open, `tell` is called from a thread when SIGTERM comes, and the program's own handler as ever."""
        if not self._is_ours_to_take():
            yield
            return
        self.prepare()  # A run of a process that has joined nobody comes here first.
        _, writer = self._listen()
        self._tell, self._held = tell, None
        previous = signal.signal(signal.SIGTERM, self._handle)
        if previous != self._handle:  # It stays in place after a run that was asked to end.
            self._previous = previous
        self._previous_pipe = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            self._close(writer)
        if self._held is not None:
            raise self._held

    def stay_deaf(self, seconds: float) -> None:
        """Ignores further requests for so long, also when no run is open: this process is ending well."""
        self._deaf_until = time.monotonic() + seconds

    def stay_deaf_to_the_end(self) -> None:
        """At the end of the program: the interpreter takes back its handlers before it has ended."""
        if time.monotonic() < self._deaf_until and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def forget(self) -> None:
        """Lets go of what a fork has inherited: the pipe is the parent's, and so is the run."""
        if self._tell is not None:
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, self._previous)
        self._tell = self._pipe = None

    def _is_ours_to_take(self) -> bool:
        """Not a nested run's, not from another thread; a signal that is ignored, or C code's, is left alone."""
        return (
            self._tell is None
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) not in (signal.SIG_IGN, None)
        )

    def _listen(self) -> tuple[int, int]:
        if self._pipe is None:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            threading.Thread(target=self._hear, args=(self._pipe[0],), name="lockstep-sigterm", daemon=True).start()
        return self._pipe

    def _hear(self, reader: int) -> None:
        while data := os.read(reader, 64):
            if self._previous_pipe >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._previous_pipe, data)
            tell = self._tell
            if _BYTE in data and tell is not None:
                tell()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._tell is None:
            self._handle_between_runs(number, frame)
            return
        if self._pipe is not None:  # Somebody may have taken the pipe's place since.
            os.write(self._pipe[1], _BYTE)
        if callable(self._previous):
            try:
                self._previous(number, frame)
            except BaseException as error:  # Raised where the run ends, so that it ends on all tasks at the same step.
                self._held = error

    def _handle_between_runs(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() < self._deaf_until:
            return
        if callable(self._previous):
            self._previous(number, frame)
            return
        signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _close(self, writer: int) -> None:
        self._tell = None
        current = signal.set_wakeup_fd(self._previous_pipe)
        if current not in (writer, -1):  # The program has set its own meanwhile.
            signal.set_wakeup_fd(current)
        self._previous_pipe = -1
        is_deaf = time.monotonic() < self._deaf_until
        if signal.getsignal(signal.SIGTERM) == self._handle and not is_deaf:
            signal.signal(signal.SIGTERM, self._previous)


_watch = _Watch()

prepare = _watch.prepare
heeded = _watch.open
stay_deaf = _watch.stay_deaf


def restore_python_handler() -> None:
    """Puts back what Python has for SIGTERM: jax's preemption service replaces it by one that does nothing."""
    if threading.current_thread() is not threading.main_thread():
        return
    with contextlib.suppress(TypeError, ValueError):  # Not set from Python.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
