"""A directory for what this user's processes keep between runs, that nobody else can write.

Compiled programs are machine code: whoever can write there, or put another directory in its place, can run code as this
user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

DIRECTORY = "LOCKSTEP_CACHE_DIR"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# As many as Linux follows.
_MOST_LINKS = 40


class UnsafeDirectory(Exception):  # It is a reason to do without, not an error.
    """A directory that somebody else may write in, or replace; the message says which, and why."""


def private_directory(name: str) -> Path:
    """Returns the directory `name` in `$LOCKSTEP_CACHE_DIR`, else in `lockstep` in the user's cache directory.

    What is missing is made, for this user alone.

    Raises:
        UnsafeDirectory: If it can be written by others, or they can put another one in its place.
        OSError: If it cannot be made, or used.
    """
    base = _walk(cache_root())
    found = base / name
    _made(found)
    for directory in (base, found):
        _demand_own(directory)
    return found


def cache_root() -> Path:
    """Where `lockstep` keeps such directories: its setting, or the XDG base directory of caches."""
    if given := os.environ.get(DIRECTORY):
        return Path(given).absolute()
    standard = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(standard) if os.path.isabs(standard) else Path.home() / ".cache") / "lockstep"


def _walk(path: Path) -> Path:
    """Returns `path` without links, after each directory above it was checked; makes what is missing.

    A link counts as its owner's, like a directory: what it leads to is walked in the same way.
    """
    here, links = Path(path.anchor), 0
    steps = list(reversed(path.parts[1:]))
    while steps:
        step = steps.pop()
        _demand_kept(here)
        if step == os.pardir:
            here = here.parent
            continue
        found = _made(here / step)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            _demand_owner(here / step, found, (os.geteuid(), 0))
            target = Path(os.readlink(here / step))
            here = Path(target.anchor) if target.is_absolute() else here
            steps += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        else:
            here = here / step
    return here


def _made(path: Path) -> os.stat_result:
    """Returns what is at `path`; makes a directory where nothing is."""
    if not os.path.lexists(path):
        with contextlib.suppress(FileExistsError):  # Another process has just made it.
            path.mkdir(mode=0o700)
    return os.lstat(path)


def _demand_own(directory: Path) -> None:
    """Raises `UnsafeDirectory` unless this user alone can write in a directory."""
    found = _status(directory)
    _demand_owner(directory, found, (os.geteuid(),))
    if found.st_mode & _OTHERS_WRITE:
        raise UnsafeDirectory(f"others may write in {directory} (mode {stat.S_IMODE(found.st_mode):o})")


def _demand_kept(directory: Path) -> None:
    """Raises `UnsafeDirectory` if others can put something else in the place of what a directory holds.

    Where the sticky bit is set, as in /tmp, only the owner of an entry can.
    """
    found = _status(directory)
    _demand_owner(directory, found, (os.geteuid(), 0))
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        who = "everybody" if found.st_mode & stat.S_IWOTH else "a group"
        raise UnsafeDirectory(f"{who} may write in {directory}, which holds it (mode {stat.S_IMODE(found.st_mode):o})")


def _demand_owner(path: Path, found: os.stat_result, owners: tuple[int, ...]) -> None:
    if found.st_uid not in owners:
        raise UnsafeDirectory(f"{path} belongs to another user (number {found.st_uid})")


def _status(directory: Path) -> os.stat_result:
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeDirectory(f"{directory} is not a directory")
    return found
