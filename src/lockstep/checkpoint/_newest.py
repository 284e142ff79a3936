"""The newest checkpoint of a directory that is any good."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TypeVar

from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._listing import on_disk
from lockstep.checkpoint._names import file_of, path_of
from lockstep.checkpoint._state import CheckpointState, read_state, state_file
from lockstep.errors import CheckpointError

_log = logging.getLogger("lockstep")

_T = TypeVar("_T")

# How often to look again because the writer was faster.
_ATTEMPTS = 10


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None) -> str | None:
    """Finds the newest checkpoint of a directory.

    That is the one which the file `checkpoint` says. If this file is missing or damaged, or what it names is not there
    or not whole, it is the newest one that is whole; the log warns of it, and says which file was bad and why.

    Args:
        checkpoint_dir: The directory.
        latest_filename: The name of the file. Default: `checkpoint`.

    Returns:
        The checkpoint's name, or `None` if there is none. Whether the values in it are undamaged shows when it is
        loaded; `load_newest` falls back also then.

    Raises:
        CheckpointError: If the directory cannot be read, or holds checkpoints of TensorFlow.

    Source: `tf.train.latest_checkpoint`.
    """
    return newest(checkpoint_dir, whole, latest_filename)


def newest(
    directory: str | os.PathLike[str],
    attempt: Callable[[str], _T],
    latest_filename: str | None = None,
    warn: Callable[[str], None] = _log.warning,
    strict: bool = False,
) -> _T | None:
    """Returns what `attempt` makes of the newest checkpoint with which it succeeds, and warns of newer ones.

    Raises:
        CheckpointError: If the directory cannot be read, or holds checkpoints of TensorFlow; or, if `strict`, instead
            of a warning.
    """
    path = path_of(directory)
    complaints: list[str] = []
    found: _T | None = None
    for _ in range(_ATTEMPTS):
        before = _stamp(path, latest_filename)
        found, complaints = _first(path, attempt, latest_filename)
        if not complaints or _stamp(path, latest_filename) == before:
            break
    if strict and complaints:
        raise CheckpointError(
            f"The newest checkpoint of {path} must be whole, and listed. {complaints[0]} Remove or restore what is "
            "damaged, or allow an older checkpoint."
        )
    for complaint in complaints:
        warn(complaint)
    return found


def _first(directory: str, attempt: Callable[[str], _T], latest_filename: str | None) -> tuple[_T | None, list[str]]:
    listed, complaints = _listed(directory, latest_filename)
    tried: set[str] = set()
    for prefix in [*listed, *reversed(on_disk(directory))]:
        if (known := os.path.abspath(prefix)) in tried:
            continue
        tried.add(known)
        try:
            return attempt(prefix), complaints
        except CheckpointError as error:
            complaints.append(f"Checkpoint {prefix} is passed over: {error}")
    # A directory without anything, or with nothing but a name, is not worth a word before training begins.
    return None, complaints if tried else []


def _listed(directory: str, latest_filename: str | None) -> tuple[list[str], list[str]]:
    """Returns what the file lists, the newest first, and what is wrong with it."""
    file = state_file(directory, latest_filename)
    try:
        return _in_order(read_state(directory, latest_filename)), []
    except (OSError, ValueError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError | NotADirectoryError) else f"cannot be read ({error})"
        return [], [f"{file} {why}: the newest checkpoint is found by the names of the files."]


def _in_order(state: CheckpointState) -> list[str]:
    return [state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)]


def _stamp(directory: str, latest_filename: str | None) -> tuple[int, int] | None:
    """What changes whenever the file is written."""
    try:
        status = os.stat(state_file(directory, latest_filename))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def whole(prefix: str) -> str:
    """Returns a checkpoint's name if its file is whole.

    Raises:
        CheckpointError: If it is not.
    """
    Archive(file_of(prefix)).close()
    return prefix
