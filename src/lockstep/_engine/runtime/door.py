"""A directory that only this user can enter, for as long as the tasks of a machine need to find each other.

What listens there cannot be reached from the network, nor by other users of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import secrets
import shutil
import socket
import stat
import tempfile
import time
from pathlib import Path

from lockstep._engine.runtime import unix_sockets

_PREFIX = "lockstep-door-"
_TOKEN, _SERVICE = "token", "service"
# Whoever makes a door locks it within a moment.
_NEW_SECONDS = 10.0
_TOKEN_BYTES = 32
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Door:
    """The directory of this process.

    Raises:
        OSError: If it cannot be made, or cannot hold a socket.

    Attributes:
        directory: Its path.
        token: What only those can read who can enter.
        service: The path at which jax's service listens, or this process' way to it.
    """

    def __init__(self) -> None:
        _remove_left()
        self.directory = tempfile.mkdtemp(prefix=_PREFIX)
        self.token = secrets.token_bytes(_TOKEN_BYTES) + _boot()
        self._lock = -1
        try:
            self.service = service_of(self.directory)
            self._lock = os.open(os.path.join(self.directory, _TOKEN), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._lock, self.token[:_TOKEN_BYTES])
            with socket.socket(socket.AF_UNIX) as sock:  # Not every file system can hold one.
                sock.bind(self.service)
            os.unlink(self.service)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes it: connections that are open stay."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def seen_through(directory: object) -> bytes | None:
    """Returns the token of another process' door, or `None` if this process cannot enter, or is on another machine.

    Args:
        directory: What somebody says is the path of its door.
    """
    if not isinstance(directory, str) or not os.path.basename(directory).startswith(_PREFIX):
        return None
    with contextlib.suppress(OSError, ValueError):
        found = os.lstat(directory)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            with open(os.path.join(directory, _TOKEN), "rb") as file:
                return file.read(_TOKEN_BYTES) + _boot()
    return None


@functools.cache
def service_of(directory: str) -> str:
    """Returns the path at which jax's service listens behind a door, for this process.

    The descriptor in it stays open: the service removes the path when it ends, and it must not have become another's.
    """
    return unix_sockets.address(unix_sockets.open_directory(directory), os.path.join(directory, _SERVICE))


def _remove_left() -> None:
    """Removes the doors of this user's processes that were killed: nobody holds their locks any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _NEW_SECONDS and _is_left(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_left(path: Path) -> bool:
    with (path / _TOKEN).open("rb") as token:
        fcntl.flock(token, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def _boot() -> bytes:
    """What tells machines apart that share a file system."""
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return os.uname().nodename.encode()
