"""Puts a new directory in the place of an old one."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def take_place(new: Path, target: Path, aside: Path) -> None:
    """Moves `new` to `target`, and removes what was there.

    At every moment the old content or the new one is complete on disk: in one step where the file system can exchange
    two names, else with the old content lying at `aside` for an instant.
    """
    try:
        new.replace(target)  # Over nothing, a file, or an empty directory.
    except OSError:
        if not target.exists():
            raise
        _replace_full(new, target, aside)


def _replace_full(new: Path, target: Path, aside: Path) -> None:
    if _exchange(new, target):
        remove(new)
        return
    remove(aside)
    target.replace(aside)
    new.replace(target)
    remove(aside)


def remove(path: Path) -> None:
    """Removes a file or a directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two names in one step (Linux' `renameat2`); returns whether this system could."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
