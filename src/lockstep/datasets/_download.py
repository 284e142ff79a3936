"""Downloads within time limits: a machine without network must notice in seconds."""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.parse
import urllib.request

from lockstep.datasets._progress import Progress

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
