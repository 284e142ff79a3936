"""Files that Keras publishes, in the cache that `keras.datasets` shares with this module."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
import time
import uuid
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lockstep.datasets._download import TOTAL_SECONDS, UnavailableError, check_reachable, download


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


def directory() -> Path:
    """Returns where Keras keeps data sets."""
    return Path(os.path.expanduser(os.environ.get("KERAS_HOME") or "~/.keras"), "datasets")


def cached_path(file: PublishedFile) -> Path:
    """Returns where a file lies once it has been downloaded."""
    return directory() / file.name


def _read_cached(path: Path, file: PublishedFile) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if _is_genuine(content, file) else None


def _is_genuine(content: bytes, file: PublishedFile) -> bool:
    return hashlib.sha256(content).hexdigest() == file.sha256


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
        return _read_cached(path, file) or _download(path, file)


def _download(path: Path, file: PublishedFile) -> bytes:
    print(f"lockstep: downloading {file.url} to {path}", file=sys.stderr)
    content = download(file.url, file.patience)
    # A proxy's login page arrives with status 200.
    if not _is_genuine(content, file):
        raise UnavailableError(f"what {file.url} sent has a wrong checksum")
    _store(path, content)
    return content


def _store(path: Path, content: bytes) -> None:
    """Writes the file in one step, so that nobody reads a part of it; a cache that cannot be written is no error."""
    # Beside the target: a rename is atomic only within a file system.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


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
