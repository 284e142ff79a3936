"""A progress bar of downloads: one line of a terminal."""

from __future__ import annotations

import sys
import time

_SECONDS_BETWEEN = 0.2
_ERASE_LINE = "\r\x1b[K"


class _Settings:
    shown = True


def disable_progress_bar() -> None:
    """Shows no progress of downloads from now on (tfds.disable_progress_bar)."""
    _Settings.shown = False


def enable_progress_bar() -> None:
    """Shows the progress of downloads in a terminal, as is the default (tfds.enable_progress_bar)."""
    _Settings.shown = True


class Progress:
    """The progress of one download; nothing is shown where standard error is no terminal.

    Args:
        name: What is downloaded.
        total: How many bytes, if that is known.
    """

    def __init__(self, name: str, total: int | None) -> None:
        self._name = name
        self._total = total
        # A log file would get a line for each update.
        self._shown = _Settings.shown and sys.stderr.isatty()
        self._next = 0.0

    def update(self, received: int) -> None:
        """Shows how many bytes have been received, a few times a second."""
        # A fast network delivers thousands of chunks a second.
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS_BETWEEN
            of = f" of {self._total / 1e6:.1f}" if self._total else ""
            print(f"{_ERASE_LINE}{self._name}: {received / 1e6:.1f}{of} MB", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Erases the line."""
        if self._shown:
            print(_ERASE_LINE, end="", file=sys.stderr, flush=True)
