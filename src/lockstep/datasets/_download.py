"""Downloads, into the directory where Keras keeps data sets."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import queue
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_SECONDS_BETWEEN = 0.2
_ERASE_LINE = "\r\x1b[K"
# A machine without network often drops packets without an answer: TCP alone would wait for minutes.
_ANSWER_SECONDS = 4.0
# Of urllib's timeout, which counts from one packet to the next.
_SILENCE_SECONDS = 10.0
# For the whole file: a server that sends a byte every few seconds is never silent.
TOTAL_SECONDS = 120.0


class _Settings:
    is_shown = True


def disable_progress_bar() -> None:
    """Shows no progress of downloads from now on (tfds.disable_progress_bar)."""
    _Settings.is_shown = False


def enable_progress_bar() -> None:
    """Shows the progress of downloads in a terminal, as is the default (tfds.enable_progress_bar)."""
    _Settings.is_shown = True


class _Progress:
    """The progress of one download in bytes; nothing is shown where standard error is no terminal."""

    def __init__(self, name: str, total: int | None) -> None:
        self._name = name
        self._total = total
        # A log file would get a line for each update.
        self._shown = _Settings.is_shown and sys.stderr.isatty()
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


class UnavailableError(Exception):
    """A file cannot be had; the message says why, as part of a sentence."""


def check_reachable(url: str) -> None:
    """Checks that the server of `url` answers; raises `UnavailableError` if it does not within seconds."""
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            # HEAD: the answer without the file.
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=_ANSWER_SECONDS).close()
            answers.put(None)
        except (OSError, http.client.HTTPException) as error:
            answers.put(error)

    # On a thread, because looking up the server's name knows no time limit.
    threading.Thread(target=ask, name="lockstep-probe", daemon=True).start()
    try:
        error = answers.get(timeout=_ANSWER_SECONDS)
    # The thread is left behind: it is a daemon, and ends with the process.
    except queue.Empty:
        error = TimeoutError(f"no answer in {_ANSWER_SECONDS:g} seconds")
    if error is not None:
        raise _unavailable_error(url, "{host} cannot be reached", error) from error


def download(url: str, patience: int = 1) -> bytes:
    """Downloads `url`; raises `UnavailableError` if that fails or takes `patience` times two minutes."""
    try:
        with urllib.request.urlopen(url, timeout=_SILENCE_SECONDS) as response:
            limit = TOTAL_SECONDS * patience
            deadline = time.monotonic() + limit
            content = bytearray()
            progress = _Progress(url, response.length)
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
    except (OSError, http.client.HTTPException) as error:
        raise _unavailable_error(url, "the download from {host} failed", error) from error


def _unavailable_error(url: str, problem: str, error: Exception) -> UnavailableError:
    # The cause inside of urllib's own error, else the error itself.
    reason = getattr(error, "reason", None) or error
    return UnavailableError(f"{problem.format(host=urllib.parse.urlsplit(url).netloc)}: {reason}")


@dataclass(frozen=True)
class PublishedFile:
    """A file that is published under a URL, and the checksum that its content must have.

    Attributes:
        name: Where it lies in Keras' cache.
        url: Where it is published.
        sha256: The checksum, in hexadecimal digits.
        patience: How many times longer than a small file its download may take.
    """

    name: str
    url: str
    sha256: str
    patience: int = 1


def obtain(file: PublishedFile, may_download: bool = True) -> tuple[bytes, Path]:
    """Returns the content of a file, from Keras' cache or else downloaded into it, and where it is cached.

    The content is verified before it is used. Processes that start together download it once.

    Raises:
        UnavailableError: If it is not in the cache and cannot be downloaded.
    """
    path = cached_path(file)
    content = _read_cached(path, file)
    try:
        # A cached file with a wrong checksum is downloaded again, as Keras does.
        return content or _fetch(path, file, may_download), path
    except UnavailableError as error:
        if path.exists():
            raise UnavailableError(f"{path} is not as published; {error}") from error
        raise


def cache_directory() -> Path:
    """Returns where Keras keeps data sets."""
    return Path(os.path.expanduser(os.environ.get("KERAS_HOME") or "~/.keras"), "datasets")


def cached_path(file: PublishedFile) -> Path:
    """Returns where a file lies once it has been downloaded."""
    return cache_directory() / file.name


def _read_cached(path: Path, file: PublishedFile) -> bytes | None:
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        return content if hashlib.sha256(content).hexdigest() == file.sha256 else None
    return None


def _fetch(path: Path, file: PublishedFile, may_download: bool) -> bytes:
    if not may_download:
        raise UnavailableError("download=False forbids downloads")
    # Before the server is asked: tests and closed networks want no packet at all.
    if os.environ.get("LOCKSTEP_OFFLINE", "0") not in ("", "0"):
        raise UnavailableError("LOCKSTEP_OFFLINE forbids downloads")
    # Before the lock: without network every process gives up within seconds, not one after another.
    check_reachable(file.url)
    with download_lock(path, TOTAL_SECONDS * file.patience):
        # Whoever waited for the lock finds the file that the other process has written.
        if (content := _read_cached(path, file)) is not None:
            return content
        print(f"lockstep: downloading {file.url} to {path}", file=sys.stderr)
        content = download(file.url, file.patience)
        # A proxy's login page arrives with status 200.
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise UnavailableError(f"what {file.url} sent has a wrong checksum")
        # Beside the target: a rename is atomic only within a file system, and nobody reads a part of the file.
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        # A cache that cannot be written is no error.
        with contextlib.suppress(OSError):
            try:
                temporary.write_bytes(content)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        return content


@contextlib.contextmanager
def download_lock(path: Path, seconds: float) -> Generator[None]:
    """Waits until no other process of this machine downloads to `path`; where files cannot be locked, does nothing."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            # A file beside the target, because the target is replaced, and a lock belongs to a file.
            lock = stack.enter_context(path.with_name(f"{path.name}.lock").open("ab"))
            _acquire(lock, seconds)
        yield


def _acquire(lock: BinaryIO, seconds: float) -> None:
    """Locks an open file; closing it frees the lock."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            # Without waiting, so that the deadline holds; the system frees the lock of a process that dies.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise UnavailableError(f"another process holds {lock.name}") from None
            time.sleep(0.1)
