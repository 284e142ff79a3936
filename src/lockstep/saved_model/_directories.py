"""Directories that appear whole or not at all, and directories with a time for a name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from lockstep.checkpoint.internal import naming
from lockstep.errors import ArgumentError

# Servers that look for versions ignore what is not a number.
_UNFINISHED = "temp-lockstep-"
_VERSION = re.compile(r"[0-9]{10}")


def create(directory: str | os.PathLike[str], fill: Callable[[Path], Any]) -> str:
    """Creates a directory that others see only when it is complete.

    Args:
        directory: Its path, which is returned.
        fill: Writes into the directory it is given.

    Raises:
        ArgumentError: If there is something at that path.
        CheckpointError: If it cannot be written.
    """
    final = Path(directory)
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise ArgumentError(
            f"An export needs a directory of its own. Received: {final}, which exists. Give a new one; and where "
            "several workers run the program, export on one of them: if strategy.is_chief."
        )
    with naming(str(final)), _temporary_directory(final.parent) as made:
        fill(made)
        _flush_to_disk(made)
        made.rename(final)
    return str(final)


def create_version(base: str | os.PathLike[str], fill: Callable[[Path], Any]) -> str:
    """Creates a directory whose name is the time, in seconds since 1970, that others see only when it is complete.

    No name is given twice, and each is larger than those before. Returns its path; `fill` writes into the directory it
    is given. Raises `CheckpointError` if it cannot be written.
    """
    # As tf.estimator.Estimator.export_saved_model names its directories; TensorFlow's waits for the next second if a
    # name is taken.
    with naming(f"An export in {base}"), _temporary_directory(Path(base)) as made:
        fill(made)
        _flush_to_disk(made)
        newest = max((int(path.name) for path in versions(base)), default=0)
        # Another process may take a name between the look and the renaming; then the next second is as good.
        stamp = max(int(time.time()), newest + 1 if newest < 9_999_999_999 else 0)
        while True:
            final = Path(base) / f"{stamp:010}"
            with contextlib.suppress(FileExistsError):
                return str(_rename(made, final))
            stamp += 1


def versions(base: str | os.PathLike[str]) -> list[Path]:
    """Returns the directories in `base` with a time (10 digits) for a name, oldest first."""
    if not os.path.isdir(base):
        return []
    return sorted(path for path in Path(base).iterdir() if _VERSION.fullmatch(path.name) and path.is_dir())


def remove(directory: Path) -> None:
    """Removes a directory, which others see whole or not at all; raises `OSError` if it is gone already."""
    # Renamed first: rmtree alone would leave half an export under its name for a while.
    with _temporary_directory(directory.parent) as made:
        directory.rename(made / directory.name)


def _rename(made: Path, final: Path) -> Path:
    """Renames; unlike the system, never over an empty directory."""
    if final.exists():
        raise FileExistsError(final)
    try:
        made.rename(final)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(final) from error
        raise
    return final


@contextlib.contextmanager
def _temporary_directory(parent: Path) -> Generator[Path]:
    """Makes a directory that is locked while it is being written, and removed unless it is renamed."""
    parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(parent)
    made, lock = _make_locked(parent)
    try:
        yield made
    finally:
        os.close(lock)
        shutil.rmtree(made, ignore_errors=True)


def _make_locked(parent: Path) -> tuple[Path, int]:
    while True:
        made = parent / f"{_UNFINISHED}{uuid.uuid4().hex}"
        made.mkdir()
        # Until it is locked, another process may take it for abandoned.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(made, os.O_RDONLY)
            is_locked = True
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Somebody is removing it.
                is_locked = False
            except OSError:
                # The file system has no locks, so nobody else has one either.
                pass
            if is_locked and made.exists():
                return made, lock
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Removes directories of processes that were killed while they wrote: the system gives up a dead one's lock."""
    for path in parent.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _flush_to_disk(directory: Path) -> None:
    """Waits until files are on the disk, so that a name never stands for half of them after a power failure."""
    for root, _, names in os.walk(directory):
        for name in names:
            _fsync(os.path.join(root, name))
        # Some file systems cannot do it for directories, or need not.
        with contextlib.suppress(OSError):
            _fsync(root)


def _fsync(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
