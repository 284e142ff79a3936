"""Downloads within time limits: a machine without network must notice in seconds."""

from __future__ import annotations

import http.client
import queue
import sys
import threading
import time
import urllib.parse
import urllib.request

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


# A machine without network often drops packets without an answer: TCP alone would wait for minutes.
_ANSWER_SECONDS = 4.0
# Of urllib's timeout, which counts from one packet to the next.
_SILENCE_SECONDS = 10.0
# For the whole file: a server that sends a byte every few seconds is never silent.
TOTAL_SECONDS = 120.0


class UnavailableError(Exception):
    """A file cannot be had; the message says why, as part of a sentence."""


def check_reachable(url: str) -> None:
    """Checks that the server of `url` answers; raises `UnavailableError` if it does not within seconds."""
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    # On a thread, because looking up the server's name knows no time limit.
    threading.Thread(target=lambda: answers.put(_ask(url)), name="lockstep-probe", daemon=True).start()
    try:
        error = answers.get(timeout=_ANSWER_SECONDS)
    # The thread is left behind: it is a daemon, and ends with the process.
    except queue.Empty:
        error = TimeoutError(f"no answer in {_ANSWER_SECONDS:g} seconds")
    if error is not None:
        raise UnavailableError(f"{_host(url)} cannot be reached: {_reason(error)}") from error


def download(url: str, patience: int = 1) -> bytes:
    """Downloads `url`; raises `UnavailableError` if that fails or takes `patience` times two minutes."""
    try:
        with urllib.request.urlopen(url, timeout=_SILENCE_SECONDS) as response:
            return _receive(response, url, TOTAL_SECONDS * patience)
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"the download from {_host(url)} failed: {_reason(error)}") from error


def _receive(response: http.client.HTTPResponse, url: str, limit: float) -> bytes:
    deadline = time.monotonic() + limit
    content = bytearray()
    progress = Progress(url, response.length)
    try:
        # read1 returns what has arrived, so that the deadline is looked at between packets.
        while chunk := response.read1(1 << 16):
            content += chunk
            progress.update(len(content))
            if time.monotonic() > deadline:
                raise TimeoutError(f"not complete after {limit:g} seconds")
    finally:
        progress.close()
    return bytes(content)


def _ask(url: str) -> Exception | None:
    try:
        # HEAD: the answer without the file.
        request = urllib.request.Request(url, method="HEAD")
        urllib.request.urlopen(request, timeout=_ANSWER_SECONDS).close()
    except (OSError, http.client.HTTPException) as error:
        return error
    return None


def _reason(error: Exception) -> object:
    """Returns the cause inside of urllib's own error, else the error itself."""
    return getattr(error, "reason", None) or error


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc
