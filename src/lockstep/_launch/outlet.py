"""One of the launcher's own outputs, written without ever blocking on a reader that does not read."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping

from lockstep._launch.ansi import coloured, plain

_DEFAULT_COLUMNS = 80


class Outlet:
    """A file descriptor to write lines to.

    What the reader does not take yet is kept, and `stalled` says so: the caller stops producing until it is taken.
    A reader that is gone is no error, its text is dropped: training does not end because nobody watches it.
    """

    def __init__(self, descriptor: int, environ: Mapping[str, str]) -> None:
        self._descriptor = descriptor
        self._pending = bytearray()
        self._closed = False
        self.is_terminal = os.isatty(descriptor)
        self.has_colour = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    @property
    def stalled(self) -> bool:
        """Whether text waits for the reader."""
        return bool(self._pending)

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        try:
            return os.get_terminal_size(self._descriptor).columns or _DEFAULT_COLUMNS
        except OSError:
            return _DEFAULT_COLUMNS

    def render(self, text: str) -> str:
        """Return the text of a task as it may be shown here: with its colours or plain."""
        return coloured(text) if self.has_colour else plain(text)

    def write(self, text: str) -> None:
        """Write `text`, or as much of it as the reader takes now."""
        if not self._closed:
            self._pending += text.encode("utf-8", "replace")
            self.flush(0)

    def flush(self, timeout: float) -> None:
        """Write what is pending, waiting at most `timeout` seconds for the reader to take some."""
        try:
            while self._pending and self._is_ready(timeout):
                # A descriptor that is ready takes this much without blocking.
                written = os.write(self._descriptor, self._pending[: select.PIPE_BUF])
                del self._pending[:written]
        except OSError:
            self._closed = True
            self._pending.clear()

    def _is_ready(self, timeout: float) -> bool:
        # Not `select`, which knows no descriptors beyond 1023.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(timeout * 1000))
