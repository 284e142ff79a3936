"""The directory of a writer: its checkpoints, the file that lists them, and the rules by which they stay.

The rules are those of `tf.compat.v1.train.Saver`. The newest `keep_max` stay. When one more is saved the oldest of them
goes, unless it was saved after the time at which the next one is to be kept for ever; that time then moves on by whole
periods, past the one that is kept. Unlike there, the time counts on across restarts, and one that cannot be removed yet
is tried again.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from lockstep.checkpoint import _archive, _atomic
from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._listing import on_disk
from lockstep.checkpoint._names import file_of, step_in, step_of
from lockstep.checkpoint._pins import remove_unless_pinned
from lockstep.checkpoint._state import CheckpointState, read_state, state_file, write_state
from lockstep.checkpoint._table_files import sweep
from lockstep.errors import CheckpointError

_log = logging.getLogger("lockstep")


class Directory:
    """The checkpoints at `path` whose names begin with `basename`; `retention` decides which stay."""

    def __init__(self, path: str, basename: str, retention: Retention) -> None:
        self._path = path
        self._basename = basename
        self._retention = retention
        self._is_known = False

    def save(self, step: int, arrays: Mapping[str, NDArray[Any]], extra: dict[str, Any]) -> None:
        """Writes a checkpoint; when it is durable, lists it and removes what need not stay.

        Raises:
            CheckpointError: If that fails.
        """
        with _failing(self._path):
            os.makedirs(self._path, exist_ok=True)
            if not self._is_known:
                # Before the first checkpoint: go on with what earlier writers left.
                _atomic.remove_leftovers(self._path)
                if found := _read_earlier(self._path, self._basename):
                    self._retention.recover(*found)
                self._is_known = True
        name = f"{self._basename}-{step}"
        file = file_of(os.path.join(self._path, name))
        with _failing(file):
            _archive.write(file, step, arrays, extra)
        with _failing(state_file(self._path)):
            self._list(Saved(name, time.time()))

    def _list(self, saved: Saved) -> None:
        self._retention.add(saved)
        excess = self._retention.excess()
        # The new one is listed before an old one goes, which is listed until it has gone: whatever happens in between,
        # the list leads to a checkpoint, and no old one is forgotten.
        self._write_state(saved)
        sweep(self._path, self._basename)
        if not excess:
            return
        for old in excess:
            try:
                if remove_unless_pinned(os.path.join(self._path, old.name)):
                    self._retention.drop(old)
            except OSError as error:  # It stays listed, and is tried again after the next save.
                _log.warning("Ignoring: %s", error)
        self._write_state(saved)

    def _write_state(self, newest: Saved) -> None:
        listed = self._retention.listed
        state = CheckpointState(
            os.path.join(self._path, newest.name),
            [os.path.join(self._path, saved.name) for saved in listed],
            [saved.time for saved in listed],
            self._retention.since,
        )
        write_state(self._path, state)


@contextmanager
def _failing(file: str) -> Generator[None]:
    """Raises `CheckpointError` with the name of the file that cannot be written."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(
            f"{file} could not be written: {error}. The checkpoints that were saved before are intact. Free space, or "
            "make the directory writable, and save again."
        ) from error


def _read_earlier(directory: str, basename: str) -> tuple[list[Saved], float | None] | None:
    """Returns the list and the time of an earlier writer, or `None` if no file `checkpoint` can be read."""
    try:
        state = read_state(directory)
    except FileNotFoundError:
        return None
    except ValueError as error:
        file = state_file(directory)
        _log.warning("%s is damaged (%s): checkpoints from before are never removed.", file, error)
        return None
    listed = [*_still_there(directory, state), *_not_yet_listed(directory, basename, state)]
    return listed, state.last_preserved_timestamp


def _still_there(directory: str, state: CheckpointState) -> list[Saved]:
    """Returns the listed checkpoints that are in this directory; others are not this writer's to remove."""
    found: dict[str, Saved] = {}
    for path, saved_at in zip(state.all_model_checkpoint_paths, _times(state), strict=True):
        if os.path.abspath(os.path.dirname(path)) == os.path.abspath(directory) and os.path.isfile(file_of(path)):
            name = os.path.basename(path)
            found[name] = Saved(name, os.stat(file_of(path)).st_mtime if saved_at is None else saved_at)
    return list(found.values())


def _times(state: CheckpointState) -> list[float | None]:
    paths, times = state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
    return list(times) if len(times) == len(paths) else [None] * len(paths)


def _not_yet_listed(directory: str, basename: str, state: CheckpointState) -> Iterator[Saved]:
    """Yields checkpoints that a writer had saved when it was killed before it could list them."""
    # They are of a later step and a later time than everything in the list, by what is written in the files: nothing
    # that was kept for ever is, and nothing that a person left out of the list, which has no times then.
    times = [time for time in _times(state) if time is not None]
    steps = [step_in(path) or 0 for path in state.all_model_checkpoint_paths]
    for prefix in on_disk(directory) if times else []:
        name, step = os.path.basename(prefix), step_of(prefix)
        if name == f"{basename}-{step}" and step > max(steps):
            with suppress(CheckpointError), Archive(file_of(prefix)) as archive:
                if archive.manifest.time > max(times):
                    yield Saved(name, archive.manifest.time)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that may have to go: its name in the directory, and when it was saved (seconds since the epoch)."""

    name: str
    time: float


@dataclass
class Retention:
    """Rules by which checkpoints stay.

    Attributes:
        keep_max: How many stay; 0 for all.
        period: Seconds, for each of which one is kept for ever.
        since: From when on the period counts, in seconds since the epoch.
        listed: The checkpoints that may have to go, from the oldest to the newest.
    """

    keep_max: int
    period: float
    since: float
    listed: list[Saved] = field(default_factory=list[Saved])

    def recover(self, found: Sequence[Saved], since: float | None) -> None:
        """Goes on with the list of an earlier writer, and with its time."""
        if self.keep_max:
            self.listed = list(found)
        if since is not None and math.isfinite(since):
            self.since = min(self.since, since)

    def add(self, saved: Saved) -> None:
        """Adds a checkpoint that was saved, perhaps anew."""
        keep = [other for other in self.listed if other.name != saved.name] if self.keep_max else []
        self.listed = [*keep, saved]

    def excess(self) -> list[Saved]:
        """Returns the checkpoints that go; those that are kept for ever leave the list instead."""
        excess = self.listed[: -self.keep_max] if self.keep_max else []
        return [saved for saved in excess if not self._preserve(saved)]

    def drop(self, saved: Saved) -> None:
        """Forgets a checkpoint."""
        self.listed.remove(saved)

    def _preserve(self, saved: Saved) -> bool:
        # Past the one that is kept: after a pause of several periods only one is kept for them.
        late = saved.time - self.since
        if late <= self.period:
            return False
        self.since += self.period * max(1, math.ceil(late / self.period) - 1) if self.period else 0.0
        self.drop(saved)
        return True
