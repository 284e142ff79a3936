"""Atomic files: they appear whole or not at all, also if the process is killed or the machine stops."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lockstep.checkpoint import _owners
from lockstep.checkpoint._owners import Life
from lockstep.errors import CheckpointError

_TEMPORARY = ".tmp"
# After so many seconds without a change, a file of a process of another machine is taken for a leftover.
_ABANDONED = 3600.0
# Errors of file systems that cannot make a directory durable, or need not.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EISDIR, errno.EACCES)


@contextmanager
def replacing(path: str) -> Generator[BinaryIO]:
    """Gives a file to write to, which becomes `path` at the end, durably; what was there stays until then.

    Raises:
        OSError: If it cannot be written; then `path` is unchanged, and nothing is left behind.
    """
    with replaced(path) as temporary, open(temporary, "xb") as file:
        yield file
        file.flush()


@contextmanager
def replaced(path: str, ending: str = "") -> Generator[str]:
    """Gives the name of a file to make, which becomes `path` at the end, durably; what was there stays until then.

    Raises:
        OSError: If it cannot be written; then `path` is unchanged, and nothing is left behind.
    """
    directory = os.path.dirname(path)
    temporary = _temporary(path) + ending
    try:
        yield temporary
        # Before the rename: else a crash may leave the new name with none of the bytes.
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)  # In one step, on POSIX file systems.
    except BaseException:  # Also KeyboardInterrupt and SystemExit.
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync(directory)  # Else the name may be the old one after a crash.


@contextmanager
def staged(path: str) -> Generator[str]:
    """Gives a path of the same name in a new directory; what is made there takes its place beside `path` at the end.

    Several processes may do so with one path at a time: each file is whole at any moment, and the last one's stay.

    Raises:
        OSError: If it cannot be written; then nothing is left behind.
    """
    directory = Path(_temporary(path))
    directory.mkdir()
    try:
        yield str(directory / os.path.basename(path))
        for root, _, names in os.walk(directory):
            for name in names:
                with open(os.path.join(root, name), "rb") as file:
                    os.fsync(file.fileno())
            _sync(root)
        for name in in_order(entry.name for entry in directory.iterdir()):
            merge(directory / name, directory.parent / name, directory / f"{name}.previous")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _sync(str(directory.parent))


def remove_leftovers(directory: str, ending: str = "") -> None:
    """Removes the leftovers of writers that were killed; never a file that a process is writing."""
    last = _TEMPORARY + ending
    with os.scandir(directory) as entries:
        for entry in [e for e in entries if e.name.startswith(".") and e.name.endswith(last)]:
            owner = _owners.parse_tag(entry.name.removesuffix(last))
            if owner is None or owner.life is Life.ALIVE:
                continue
            with suppress(OSError):
                # Processes of other machines cannot be asked: age decides.
                if owner.life is Life.DEAD or age(entry.path) > _ABANDONED:
                    remove(Path(entry.path))


def age(path: str) -> float:
    """Returns how many seconds ago a file was changed, by the clock of its file system.

    Raises:
        FileNotFoundError: If it is not there.
    """
    changed = os.stat(path).st_mtime
    # A new file shows the clock of the file system, which may be another machine's.
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(path) or ".") as fresh:
            return os.fstat(fresh.fileno()).st_mtime - changed
    except OSError:
        return time.time() - changed


def _temporary(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, _owners.tag_name(f".{name}") + _TEMPORARY)


def _sync(directory: str) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


# Of <fcntl.h> and <linux/fs.h>; Python has no renameat2.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# Tries again if another process has put its own directory in the same place meanwhile.
_ATTEMPTS = 10


def merge(new: Path, target: Path, aside: Path) -> None:
    """Moves `new` to `target`, and removes what was there of the same names.

    A directory at `target` that holds other entries, too, keeps them: then the entries are moved, each in one step.

    Raises:
        OSError: If it cannot be moved.
    """
    if new.is_dir() and target.is_dir() and _names(target) - _names(new):
        for name in in_order(_names(new)):
            take_place(new / name, target / name, aside.with_name(f"{aside.name}.{name}"))
    else:
        take_place(new, target, aside)


def in_order(names: Iterable[str]) -> list[str]:
    """Returns names of files in the order in which they may be replaced one by one: those that list others last."""
    # An export's manifest comes last: until then the old one describes files that are still there.
    return sorted(names, key=lambda name: (name.endswith((".json", ".pb")), name))


def take_place(new: Path, target: Path, aside: Path) -> None:
    """Moves `new` to `target`, and removes what was there.

    At every moment the old content or the new one is complete on disk: in one step where the file system can exchange
    two names, else with the old content lying at `aside` for an instant.
    """
    try:
        for _ in range(_ATTEMPTS):
            with suppress(OSError):
                new.replace(target)  # Over nothing, a file, or an empty directory.
                return
            if not target.exists():
                break
            if _exchange(new, target):
                remove(new)
                return
            remove(aside)
            with suppress(FileNotFoundError):
                target.replace(aside)
        new.replace(target)
    finally:
        # Whatever was raised, something complete lies at the target.
        if target.exists():
            remove(aside)
        elif aside.exists():
            aside.replace(target)


def remove(path: Path) -> None:
    """Removes a file or a directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two names in one step (Linux' `renameat2`); returns whether this system could."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


@contextmanager
def naming(path: str) -> Generator[None]:
    """Turns an error of writing to a disk into one that names `path`, which the system's own often does not.

    Raises:
        CheckpointError: Instead of `OSError`, and of the plain `RuntimeError` that h5py raises on a full disk.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not isinstance(error, OSError) and type(error) is not RuntimeError:
            raise
        raise CheckpointError(
            f"{path} could not be written: {str(error).removesuffix('.')}. What was saved before is intact. Free "
            "space, or give a path in a directory that can be written to."
        ) from error
