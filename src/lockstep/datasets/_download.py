"""Downloads within time limits: a machine without network must notice in seconds."""

from __future__ import annotations

import http.client
import queue
import threading
import time
import urllib.parse
import urllib.request

from lockstep.datasets._progress import Progress

_ANSWER_SECONDS = 4.0
_SILENCE_SECONDS = 10.0
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
