"""What an earlier writer left in a directory, for the next one to go on with."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._listing import on_disk
from lockstep.checkpoint._names import file_of, step_in, step_of
from lockstep.checkpoint._retention import Saved
from lockstep.checkpoint._state import CheckpointState, read_state, state_file
from lockstep.errors import CheckpointError

_log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        listed: The checkpoints that may have to go, from the oldest to the newest.
        since: From when on the period counts for which one is kept for ever, if it is known.
    """

    listed: list[Saved]
    since: float | None


def found_in(directory: str, basename: str) -> Found | None:
    """Returns what the file `checkpoint` says, or `None` if there is none that can be read."""
    try:
        state = read_state(directory)
    except FileNotFoundError:
        return None
    except ValueError as error:
        file = state_file(directory)
        _log.warning("%s is damaged (%s): checkpoints from before are never removed.", file, error)
        return None
    return Found(
        [*_still_there(directory, state), *_not_yet_listed(directory, basename, state)], state.last_preserved_timestamp
    )


def _still_there(directory: str, state: CheckpointState) -> list[Saved]:
    """Returns what a state lists and is in this directory; what lies elsewhere is not this writer's to remove."""
    found: dict[str, Saved] = {}
    for path, time in zip(state.all_model_checkpoint_paths, _times(state), strict=True):
        if os.path.abspath(os.path.dirname(path)) == os.path.abspath(directory) and os.path.isfile(file_of(path)):
            name = os.path.basename(path)
            found[name] = Saved(name, os.stat(file_of(path)).st_mtime if time is None else time)
    return list(found.values())


def _times(state: CheckpointState) -> list[float | None]:
    paths, times = state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
    return list(times) if len(times) == len(paths) else [None] * len(paths)


def _not_yet_listed(directory: str, basename: str, state: CheckpointState) -> Iterator[Saved]:
    """Yields what a writer had saved when it was killed before it could list it.

    That is of a later step and a later time than everything in the list, by what is written in the files: nothing that
    was kept for ever is, and nothing that a person left out of the list, which has no times then.
    """
    times = [time for time in _times(state) if time is not None]
    steps = [step_in(path) or 0 for path in state.all_model_checkpoint_paths]
    for prefix in on_disk(directory) if times else []:
        name, step = os.path.basename(prefix), step_of(prefix)
        if name == f"{basename}-{step}" and step > max(steps):
            saved = _time_of(prefix)
            if saved is not None and saved > max(times):
                yield Saved(name, saved)


def _time_of(prefix: str) -> float | None:
    try:
        with Archive(file_of(prefix)) as archive:
            return archive.manifest.time
    except CheckpointError:
        return None
