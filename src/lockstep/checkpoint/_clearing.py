"""Removing all checkpoints of a writer that has done its work."""

from __future__ import annotations

import os
from contextlib import suppress

from lockstep.checkpoint import _atomic
from lockstep.checkpoint._listing import on_disk, remove_checkpoint
from lockstep.checkpoint._names import path_of
from lockstep.checkpoint._state import state_file


def remove_all(directory: str | os.PathLike[str], basename: str) -> None:
    """Removes the checkpoints of a directory that are called so, and the directory if nothing else is in it.

    The newest goes last: whenever this is interrupted, what is left leads to it, or to nothing.

    Raises:
        OSError: If one cannot be removed.
        CheckpointError: If the directory cannot be read.
    """
    path = path_of(directory)
    if not os.path.isdir(path):
        return
    *older, newest = [None, *[p for p in on_disk(path) if os.path.basename(p).rpartition("-")[0] == basename]]
    for prefix in filter(None, older):
        remove_checkpoint(prefix)
    with suppress(FileNotFoundError):
        os.unlink(state_file(path))
    if newest is not None:
        remove_checkpoint(newest)
    _atomic.remove_leftovers(path)
    for left in (os.path.join(path, ".pins"), path):
        with suppress(OSError):
            os.rmdir(left)
