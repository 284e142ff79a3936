"""Puts new files and directories in the place of old ones."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# How often to try again because another process has put its own directory in the same place meanwhile.
_ATTEMPTS = 10


def merge(new: Path, target: Path, aside: Path) -> None:
    """Moves `new` to `target`, and removes what was there of the same names.

    A directory at `target` that holds other entries, too, keeps them: then the entries are moved, each in one step.

    Args:
        new: A file or a directory, on the file system of `target`.
        target: Its place.
        aside: A name, on the same file system, for what was there, if it cannot be exchanged in one step.

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
