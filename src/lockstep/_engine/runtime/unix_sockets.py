"""Paths for the addresses of Unix sockets, whatever the directory is called that they lie in.

An address has room for 107 bytes. gRPC's are URIs besides: it decodes "%41", and cuts them off at "#" and "?". A
descriptor of the directory names it in a few plain characters, for this process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

_DESCRIPTORS = "/proc/self/fd"
_LONGEST = 107
_DECODED = "%#?"


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
    if len(os.fsencode(path)) > _LONGEST or set(path) & set(_DECODED):
        raise OSError(
            f"the address of a socket has at most {_LONGEST} bytes and none of {_DECODED!r}, and {path!r} is none; "
            "set TMPDIR to another directory"
        )
    return path


@contextlib.contextmanager
def addressed(path: str) -> Generator[str]:
    """Gives another path of `path` for the address of a socket; see `address`."""
    directory = open_directory(os.path.dirname(path))
    try:
        yield address(directory, path)
    finally:
        os.close(directory)
