"""Listing of a directory's checkpoints: all, the newest that is whole, and waiting for new ones."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from lockstep.checkpoint import _atomic
from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._names import SUFFIX, file_of, path_of, prefix_of, step_in, step_of
from lockstep.checkpoint._source import exists, open_source
from lockstep.checkpoint._state import read_state, state_file
from lockstep.checkpoint._table_files import remove_tables
from lockstep.checkpoint._tensorflow.bundle import INDEX, is_table
from lockstep.checkpoint._tensorflow.directories import first_in
from lockstep.errors import CheckpointError


def on_disk(directory: str | os.PathLike[str]) -> list[str]:
    """Returns the names of files that are called like checkpoints, TensorFlow's too, ascending by step.

    Raises:
        CheckpointError: If the directory cannot be read.
    """
    path = path_of(directory)
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"The directory {path} cannot be read: {error}. Make it readable.") from error
    # A leading dot marks temporary files.
    shown = [name for name in names if not name.startswith(".")]
    ours = {name.removesuffix(SUFFIX) for name in shown if name.endswith(SUFFIX)}
    theirs = {n.removesuffix(INDEX) for n in shown if n.endswith(INDEX) and is_table(os.path.join(path, n))}
    named = sorted((step_of(stem), stem) for stem in ours | theirs if step_in(stem) is not None)
    return [os.path.join(path, stem) for _, stem in named]


def all_checkpoints(directory: str | os.PathLike[str]) -> list[str]:
    """Returns the checkpoints that are in a directory and complete, ascending by step.

    Args:
        directory: The directory; if it is not there, it has none.

    Returns:
        Their names. Whether the values in them are undamaged shows when they are loaded.

    Raises:
        CheckpointError: If the directory cannot be read.
    """
    return [prefix for prefix in on_disk(directory) if _is_complete(prefix)]


def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Returns whether there is the file of a checkpoint.

    Source: `tf.compat.v1.train.checkpoint_exists`.
    """
    return exists(checkpoint_prefix)


def remove_checkpoint(checkpoint_prefix: str | os.PathLike[str]) -> None:
    """Removes a checkpoint, pinned or not; one that is not there is no error.

    Raises:
        OSError: If it cannot be removed.

    Source: `tf.compat.v1.train.remove_checkpoint`.
    """
    with suppress(FileNotFoundError):
        os.unlink(file_of(checkpoint_prefix))
    remove_tables(prefix_of(checkpoint_prefix))


def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[str | os.PathLike[str]]) -> list[float]:
    """Returns when checkpoints were written, in seconds since the epoch; those that are not there are left out.

    Source: `tf.compat.v1.train.get_checkpoint_mtimes`.
    """
    times: list[float] = []
    for prefix in checkpoint_prefixes:
        try:
            times.append(os.stat(file_of(prefix)).st_mtime)
        except FileNotFoundError:
            continue
    return times


_log = logging.getLogger("lockstep")

_T = TypeVar("_T")

# Looks at the directory again if its writer has listed another checkpoint meanwhile.
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
        CheckpointError: If the directory cannot be read.

    Source: `tf.train.latest_checkpoint`.
    """
    return newest(checkpoint_dir, check_whole, latest_filename)


def newest(
    directory: str | os.PathLike[str],
    attempt: Callable[[str], _T],
    latest_filename: str | None = None,
    warn: Callable[[str], None] = _log.warning,
    strict: bool = False,
) -> _T | None:
    """Returns the result of `attempt` for the newest checkpoint with which it succeeds; warns of newer ones.

    Raises:
        CheckpointError: If the directory cannot be read, or if nothing in it but checkpoints of TensorFlow's that
            cannot be read; or, if `strict`, instead of a warning.
    """
    path = path_of(directory)
    complaints: list[str] = []
    found: _T | None = None
    # Files may go between the listing and the reading: a complaint counts only if the list has not changed meanwhile.
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
    if found is None and (theirs := first_in(path)) is not None:
        raise _unreadable(path, theirs, complaints)
    for complaint in complaints:
        warn(complaint)
    return found


def _unreadable(directory: str, file: str, complaints: list[str]) -> CheckpointError:
    """Returns the error about a directory in which TensorFlow has saved, and nothing can be gone on from."""
    # A warning would not do: training would begin anew beside what somebody means to continue.
    reason = next((text for text in complaints if "is passed over" in text), "No checkpoint there ends with its step.")
    return CheckpointError(
        f"{file} belongs to a checkpoint of TensorFlow, and none of {directory or '.'} can be read: training would "
        f"begin anew beside it. {reason} Copy all of its files there, name it by its whole path, or give another "
        "directory."
    )


def _first(directory: str, attempt: Callable[[str], _T], latest_filename: str | None) -> tuple[_T | None, list[str]]:
    listed, complaints = _read_list(directory, latest_filename)
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


def _read_list(directory: str, latest_filename: str | None) -> tuple[list[str], list[str]]:
    """Returns the checkpoints that the file lists, the newest first, and complaints about the file."""
    file = state_file(directory, latest_filename)
    try:
        state = read_state(directory, latest_filename)
        return [state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)], []
    except (OSError, ValueError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError | NotADirectoryError) else f"cannot be read ({error})"
        return [], [f"{file} {why}: the newest checkpoint is found by the names of the files."]


def _stamp(directory: str, latest_filename: str | None) -> tuple[int, int] | None:
    """Returns a stamp that changes whenever the file is written."""
    try:
        status = os.stat(state_file(directory, latest_filename))
    except OSError:
        return None
    # The inode too: each writing makes a new file, and clocks of file systems are coarse.
    return status.st_ino, status.st_mtime_ns


def check_whole(prefix: str) -> str:
    """Returns a checkpoint's name if its file is whole.

    Raises:
        CheckpointError: If it is not.
    """
    source = open_source(prefix)
    if isinstance(source, Archive):
        source.close()
    return prefix


def _is_complete(prefix: str) -> bool:
    """Returns whether the files of a checkpoint are whole; the values in them are not looked at."""
    try:
        check_whole(prefix)
    except CheckpointError:
        return False
    return True


# Seconds between two looks.
_PAUSE = 0.2


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the newest checkpoint of a directory whenever there is a new one; those in between are passed over.

    Args:
        checkpoint_dir: The directory, which need not be there yet.
        min_interval_secs: How many seconds lie at least between two of them.
        timeout: How many seconds to wait at most for the next one. Default: for ever.
        timeout_fn: Called after that time; if it returns `True` the iterator ends, else it goes on waiting. Default: it
            ends.

    Yields:
        The name of a checkpoint.

    Raises:
        CheckpointError: If the directory cannot be read.

    Source: `tf.train.checkpoints_iterator`.
    """
    path = path_of(checkpoint_dir)
    warned: set[str] = set()

    def warn_once(text: str) -> None:
        if text not in warned:
            warned.add(text)
            _log.warning("%s", text)

    # Each complaint once: the directory is listed five times a second.
    find = functools.partial(newest, path, check_whole, warn=warn_once)
    yield from watch(path, find, min_interval_secs, timeout, timeout_fn)


def watch(
    directory: str,
    find: Callable[[], str | None],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields what `find` returns for a directory whenever that is another name; as `checkpoints_iterator`."""
    last: str | None = None
    while True:
        new = _wait_for_another(directory, find, last, timeout)
        if new is None:
            if timeout_fn is None:
                _log.info("Timed-out waiting for a checkpoint.")
                return
            if timeout_fn():
                return
            continue
        began = time.monotonic()
        last = new
        yield new
        time.sleep(max(0.0, began + min_interval_secs - time.monotonic()))


def _wait_for_another(
    directory: str, find: Callable[[], str | None], last: str | None, timeout: float | None
) -> str | None:
    _log.info("Waiting for new checkpoint at %s", directory)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        new = find()
        if new is not None and new != last:
            _log.info("Found new checkpoint at %s", new)
            return new
        if end is not None and time.monotonic() + _PAUSE > end:
            return None
        time.sleep(_PAUSE)


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
    # The writer may be killed here too, and its successor must find the newest, or none.
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
