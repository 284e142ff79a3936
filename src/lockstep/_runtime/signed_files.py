"""Files that are loaded as code: whole, and as this user's processes have written them.

XLA and the linker take machine code as it is: one that was cut short or changed ends the process. So each file starts
with an HMAC of its name and content, under a key that only this user can read. Damage at any byte, a file of another
name, and one that somebody has put there without the key mean that it is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import stat
import tempfile
from pathlib import Path

_log = logging.getLogger("lockstep")
_MAGIC = b"lockstep signed 1\n"
_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
OVERHEAD = len(_MAGIC) + _DIGEST_BYTES
"""How many bytes a file has besides its content."""
_KEY = "key"
_KEY_BYTES = 32
PARTIAL = "partial-"
"""The prefix of the names of files that are being written."""


class SignedFiles:
    """The files of a directory, which only this user can write in.

    Args:
        directory: The directory. The key lies beside it, for all directories there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key_path = directory.parent / _KEY
        self._has_warned = False

    def read(self, path: Path) -> bytes | None:
        """Returns the content of a file, or `None` if there is none; a damaged one is removed, with a warning."""
        try:
            found = path.read_bytes()
        except OSError:
            return None
        content = found[OVERHEAD:]
        try:
            is_whole = found.startswith(_MAGIC) and hmac.compare_digest(
                found[len(_MAGIC) : OVERHEAD], self._signature(path, content)
            )
        except OSError as error:
            _log.debug("The key of %s cannot be read: %s", self._directory, error)
            return None
        if is_whole:
            return content
        self._warn(path)
        remove(path)
        return None

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file, durably and at once: whoever reads it sees all of it, or what was there before.

        Raises:
            OSError: If it cannot be written; nothing is left behind.
        """
        _replace(path, _MAGIC + self._signature(path, content) + content)

    def _signature(self, path: Path, content: bytes) -> bytes:
        signed = hmac.new(self._key(), path.name.encode() + b"\0", _DIGEST)
        signed.update(content)
        return signed.digest()

    def _key(self) -> bytes:
        """The key; another one where there is none that can be used. Then no file of the old one is taken any more."""
        key = _private_content(self._key_path)
        if key is None:
            _make_key(self._key_path)
            key = _private_content(self._key_path)
        if key is None:
            raise OSError(f"{self._key_path} is not a private file of {_KEY_BYTES} bytes")
        return key

    def _warn(self, path: Path) -> None:
        """Warns once: a disk that has damaged one file has often damaged many."""
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        _log.log(level, "The compiled code in %s is damaged, or not this user's; it is compiled again.", path)


def remove(path: Path | str) -> None:
    """Removes a file, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _private_content(path: Path) -> bytes | None:
    """Returns the key in a file, or `None` unless it is one that only this user can read."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
                content = file.read(_KEY_BYTES + 1)
                return content if len(content) == _KEY_BYTES else None
    return None


def _make_key(path: Path) -> None:
    """Makes a key. Of several processes that find none, one does; an unusable one is replaced."""
    if os.path.lexists(path):
        _replace(path, secrets.token_bytes(_KEY_BYTES))
        return
    partial = _written(path.parent, secrets.token_bytes(_KEY_BYTES))
    try:
        os.link(partial, path)
    except FileExistsError:
        _log.debug("Another process has made %s.", path)
    finally:
        remove(partial)


def _replace(path: Path, content: bytes) -> None:
    partial = _written(path.parent, content)
    try:
        os.replace(partial, path)
    except BaseException:
        remove(partial)
        raise


def _written(directory: Path, content: bytes) -> str:
    """Returns the path of a new file, which only this user can read, with this content, on the disk."""
    descriptor, partial = tempfile.mkstemp(prefix=PARTIAL, dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        remove(partial)
        raise
    return partial
