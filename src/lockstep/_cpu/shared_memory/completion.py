"""Threads on which XLA's programs go on after a sum.

To tell XLA that a sum is there may run the rest of its program, which may wait for another replica of this process: so
each call that waits to be told has a thread of its own, and never the one that adds up.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Completion:
    """A pool that never makes work wait for other work."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def run(self, work: Callable[[], None]) -> None:
        """Runs `work` on a thread that does nothing else."""
        with self._lock:
            self._idle -= 1
            if self._idle < 0:
                self._start()
        self._work.put(work)

    def close(self) -> None:
        """Ends the threads, when they have done what they do."""
        with self._lock:
            for _ in range(self._threads):
                self._work.put(None)

    def _start(self) -> None:
        self._idle += 1
        self._threads += 1
        threading.Thread(target=self._serve, name=f"lockstep-sum-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._idle += 1
