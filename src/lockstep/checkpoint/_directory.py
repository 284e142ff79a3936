"""The directory of a writer: its checkpoints, the file that lists them, and which of them stay."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from lockstep.checkpoint import _atomic, _recovery, _writing
from lockstep.checkpoint._names import file_of
from lockstep.checkpoint._pins import remove_unless_pinned
from lockstep.checkpoint._retention import Retention, Saved
from lockstep.checkpoint._state import CheckpointState, state_file, write_state
from lockstep.errors import CheckpointError

_log = logging.getLogger("lockstep")


class Directory:
    """Where a writer keeps its checkpoints.

    Args:
        path: Its path.
        basename: What the names of its checkpoints begin with.
        retention: Which checkpoints stay.
    """

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
            self._look_around()
        name = f"{self._basename}-{step}"
        file = file_of(os.path.join(self._path, name))
        with _failing(file):
            _writing.write(file, step, arrays, extra)
        with _failing(state_file(self._path)):
            self._list(Saved(name, time.time()))

    def _look_around(self) -> None:
        """Before the first checkpoint: what earlier writers left."""
        if not self._is_known:
            _atomic.remove_leftovers(self._path)
            if found := _recovery.found_in(self._path, self._basename):
                self._retention.recover(found.listed, found.since)
            self._is_known = True

    def _list(self, saved: Saved) -> None:
        self._retention.add(saved)
        excess = self._retention.excess()
        # The new one is listed before an old one goes, which is listed until it has gone: whatever happens in between,
        # the list leads to a checkpoint, and no old one is forgotten.
        self._write_state(saved)
        if excess:
            self._remove(excess)
            self._write_state(saved)

    def _remove(self, excess: list[Saved]) -> None:
        for saved in excess:
            try:
                if remove_unless_pinned(os.path.join(self._path, saved.name)):
                    self._retention.drop(saved)
            except OSError as error:
                _log.warning("Ignoring: %s", error)

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
    """Names the file that cannot be written."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(
            f"{file} could not be written: {error}. The checkpoints that were saved before are intact. Free space, or "
            "make the directory writable, and save again."
        ) from error
