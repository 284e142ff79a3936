"""Unix sockets in a directory that only this user can enter: unreachable from the network and for other users.

The address of a socket has room for 107 bytes. gRPC's are URIs besides: it decodes "%41", and cuts them off at "#" and
"?". A descriptor of the directory names it in a few plain characters, for this process.
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
from collections.abc import Generator
from pathlib import Path

_PREFIX = "lockstep-door-"
_TOKEN, _SERVICE = "token", "service"
# A process locks its directory within milliseconds of making it; younger ones are not taken for leftovers.
_NEW_SECONDS = 10.0
_TOKEN_BYTES = 32
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_DESCRIPTORS = "/proc/self/fd"
# sizeof(sockaddr_un.sun_path) is 108 on Linux, with the final zero.
_MAX_BYTES = 107
_DECODED = "%#?"


class SocketDir:
    """The private socket directory of this process.

    Raises:
        OSError: If it cannot be made, or cannot hold a socket.

    Attributes:
        directory: Its path.
        token: A secret in it: processes that can enter the directory prove so by the token.
        service: The path at which jax's service listens, or this process' way to it.
    """

    def __init__(self) -> None:
        _remove_leftovers()
        self.directory = tempfile.mkdtemp(prefix=_PREFIX)
        self.token = secrets.token_bytes(_TOKEN_BYTES) + _boot()
        self._lock = -1
        try:
            self.service = service_path(self.directory)
            self._lock = os.open(os.path.join(self.directory, _TOKEN), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Held until the process ends, whatever ends it: so others know leftovers.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._lock, self.token[:_TOKEN_BYTES])
            with socket.socket(socket.AF_UNIX) as sock:  # Not every file system can hold one.
                sock.bind(self.service)
            os.unlink(self.service)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes the directory: connections that are open stay."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def read_token(directory: object) -> bytes | None:
    """Returns the token of another process' directory, or `None` if this process cannot enter it.

    Args:
        directory: The path that the other process claims; it is not trusted. On another machine that shares the file
            system the token differs, because it holds the boot id.
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
def service_path(directory: str) -> str:
    """Returns the path of jax's service in a socket directory, as the address of a socket of this process."""
    # The descriptor stays open: the service unlinks the path when it ends, and the number must not be another's then.
    return address(open_directory(directory), os.path.join(directory, _SERVICE))


def open_directory(path: str) -> int:
    """Returns a descriptor of a directory."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def address(directory: int, path: str) -> str:
    """Returns another path of `path`, for as long as the descriptor of the directory that it lies in is open.

    Raises:
        OSError: If it cannot be the address of a socket, where the system does not name directories by descriptors.
    """
    if os.path.isdir(_DESCRIPTORS):
        return f"{_DESCRIPTORS}/{directory}/{os.path.basename(path)}"
    if len(os.fsencode(path)) > _MAX_BYTES or set(path) & set(_DECODED):
        raise OSError(
            f"the address of a socket has at most {_MAX_BYTES} bytes and none of {_DECODED!r}, and {path!r} is none; "
            "set TMPDIR to another directory"
        )
    return path


@contextlib.contextmanager
def shorten_path(path: str) -> Generator[str]:
    """Gives another path of `path` for the address of a socket; see `address`."""
    directory = open_directory(os.path.dirname(path))
    try:
        yield address(directory, path)
    finally:
        os.close(directory)


def _remove_leftovers() -> None:
    """Removes the directories of this user's processes that were killed: nobody holds their locks any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _NEW_SECONDS:
                with (path / _TOKEN).open("rb") as token:
                    fcntl.flock(token, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError if its process runs.
                shutil.rmtree(path, ignore_errors=True)


def _boot() -> bytes:
    """Returns an id of this start of this machine: machines that share a file system must not meet in it."""
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return os.uname().nodename.encode()
