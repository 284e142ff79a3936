"""One process at a time compiles a program; the others wait for what it keeps.

The processes of a job start together and need the same programs. On one machine each would compile them all on the
cores that the others compile on (two workers on a 2-core EPYC: 7.8 s to the first step, each for itself).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

_POLL_SECONDS = 0.01
# Then whoever compiles takes longer than it is worth waiting for, or is stopped.
_WAIT_SECONDS = 120.0


class Turns:
    """The turns of this process, of which each thread has at most one. The kernel ends those of a process that dies."""

    def __init__(self) -> None:
        self._held = threading.local()

    def take(self, path: Path, seconds: float = _WAIT_SECONDS) -> bool:
        """Takes the turn named by `path`, a file; returns whether this thread had to wait for another one's end.

        Where files cannot be locked, and after `seconds`, there are no turns.
        """
        self.end()
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._held.turn = descriptor, path
            return _wait(descriptor, time.monotonic() + seconds)
        return False

    def end(self) -> None:
        """Ends this thread's turn, if it has one."""
        turn = getattr(self._held, "turn", None)
        if turn is None:
            return
        self._held.turn = None
        descriptor, path = turn
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def _wait(descriptor: int, deadline: float) -> bool:
    waited = False
    while not _locked(descriptor) and time.monotonic() < deadline:
        waited = True
        time.sleep(_POLL_SECONDS)
    return waited


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
