"""A directory for what this user's processes keep between runs, that nobody else can write.

Compiled programs are machine code: whoever can write there can run code as this user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_SETTING = "LOCKSTEP_CACHE_DIR"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeDirectory(Exception):  # It is a reason to do without, not an error.
    """A directory that somebody else may write in; the message says which, and why."""


def private_directory(name: str) -> Path:
    """Returns the directory `name` in `$LOCKSTEP_CACHE_DIR`, else in `lockstep` in the user's cache directory.

    What is missing is made, for this user alone.

    Raises:
        UnsafeDirectory: If it can be written by others.
        OSError: If it cannot be made, or used.
    """
    base = cache_root()
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = base.resolve() / name
    found.mkdir(mode=0o700, exist_ok=True)
    for directory in (found, *found.parents):
        _check(directory, own=directory in (found, found.parent))
    return found


def cache_root() -> Path:
    """Where `lockstep` keeps such directories: its setting, or the XDG base directory of caches."""
    if given := os.environ.get(_SETTING):
        return Path(given).absolute()
    standard = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(standard) if os.path.isabs(standard) else Path.home() / ".cache") / "lockstep"


def _check(directory: Path, own: bool) -> None:
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeDirectory(f"{directory} is not a directory")
    if found.st_uid not in ((os.geteuid(),) if own else (os.geteuid(), 0)):
        raise UnsafeDirectory(f"{directory} belongs to another user (number {found.st_uid})")
    if own and found.st_mode & _OTHERS_WRITE:
        raise UnsafeDirectory(f"others may write in {directory} (mode {stat.S_IMODE(found.st_mode):o})")
    # Above it, others must not be able to put another directory in its place. A group is often this user's own.
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UnsafeDirectory(f"everybody may write in {directory}, which holds it")
