"""The directory that tasks write in for the launcher, which is made again when something has removed it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

_LOOK_SECONDS = 1.0
_PREFIX = "lockstep-"


class Workspace:
    """A directory of this user alone, below the one for temporary files.

    What cleans that up may remove it while tasks run: what they write for the launcher is lost without an error until
    it is there again.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._kept: Path | None = None
        self._looked = time.monotonic()

    def generation(self, number: int) -> Path:
        """Make and return the directory of a generation, which is kept from now on."""
        if not _is_own(self.path):
            self._replace()
        self._kept = self.path / f"generation-{number}"
        self._kept.mkdir(mode=0o700, exist_ok=True)
        return self._kept

    def look(self, now: float) -> None:
        """Make the directory of this generation again if it has gone; look once a second."""
        if self._kept is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if not self._kept.exists() and (_is_own(self.path) or _make(self.path)):
            _make(self._kept)

    def _replace(self) -> None:
        """Make it again, elsewhere if somebody else has taken the name."""
        if not _make(self.path):
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_existing(self.path.parent)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _make(path: Path) -> bool:
    """Make a directory that was not there, for this user alone; return whether that was possible."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError:
        return False
    return True


def _existing(directory: Path) -> Path | None:
    """Return the directory, or None for the system's choice of another one."""
    return directory if os.access(directory, os.W_OK) else None


def _is_own(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


# MERGED error_file
# """What a task that fails writes about it, for the launcher to find the first cause."""


@dataclass(frozen=True)
class ErrorRecord:
    """The error that ended a task; a `secondary` one is the consequence of another task's failure."""

    time: float
    type: str
    message: str
    traceback: str
    secondary: bool


def read_error(path: Path) -> ErrorRecord | None:
    """Return the record in the file, or None if the task wrote none or was killed while it did."""
    try:
        return _error_record(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _error_record(found: Any) -> ErrorRecord:
    values = cast("dict[str, Any]", found)
    return ErrorRecord(
        time=float(values["time"]),
        type=str(values["type"]),
        message=str(values["message"]),
        traceback=str(values["traceback"]),
        secondary=bool(values["secondary"]),
    )


# MERGED progress_file
# """What a task writes about how far it is, for the launcher to judge failures by, and to time restarts."""


@dataclass(frozen=True)
class ProgressRecord:
    """How far a task has come.

    Attributes:
        dispatches: How many times it has started steps on the devices, since its start.
        step: The number of the last step, as the optimizer or the global step counts, also across restarts; `None` if
            it does not know.
        marks: When it did something for the first time, in seconds since the epoch: "joined" its cluster, entered a
            "run", "restored" a checkpoint, called its first step ("called"), had made it ("stepped").
    """

    dispatches: int = 0
    step: int | None = None
    marks: dict[str, float] | None = None

    def time(self, mark: str) -> float | None:
        """Return when the task did this, or None."""
        return (self.marks or {}).get(mark)


def read_progress(path: Path) -> ProgressRecord | None:
    """Return the record in the file, or None if there is none, or something else."""
    try:
        return _progress_record(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _progress_record(found: Any) -> ProgressRecord:
    values = cast("dict[str, Any]", found)
    step = values.get("step")
    marks = {str(name): float(time) for name, time in values["marks"].items()}
    return ProgressRecord(int(values["dispatches"]), None if step is None else int(step), marks)
