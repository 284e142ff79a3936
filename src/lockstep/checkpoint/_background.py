"""Work that goes on while the caller does something else, one piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """Runs one piece of work on a thread; the interpreter does not end before it is done."""

    def __init__(self) -> None:
        # It stays: starting a thread for each piece costs the caller up to an interval of the interpreter's lock, 5 ms.
        self._thread = ThreadPoolExecutor(1, "lockstep-checkpoint")
        self._work: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Starts a piece of work; the one before is awaited first, and raises what it raised."""
        self.join()
        self._work = self._thread.submit(work)

    def check(self) -> None:
        """Raises once what the last piece of work raised, if it has ended; does not wait."""
        if self._work is not None and self._work.done():
            self.join()

    def join(self) -> None:
        """Waits for the work under way, and raises once what it raised."""
        if (work := self._work) is None:
            return
        error = work.exception()
        # Unless a signal's handler has saved in the meantime.
        if self._work is work:
            self._work = None
        if error is not None:
            raise error

    def close(self) -> None:
        """Waits likewise, and lets go of the thread."""
        self._thread.shutdown()
        self.join()
