"""Files that tasks write for the launcher: their errors, and how far they are."""

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
from typing import Any, Self

from lockstep._launch.console import plain

_LOOK_SECONDS = 1.0
_KERAS = "Exception encountered when calling"
_PREFIX = "lockstep-"


@dataclass(frozen=True)
class ErrorRecord:
    """The error that ended a task; a `secondary` one is the consequence of another task's failure."""

    time: float
    type: str
    message: str
    traceback: str
    secondary: bool

    @property
    def headline(self) -> str:
        """The line of the message that says what is wrong; of Keras' errors the one below where it happened."""
        lines = [line for each in self.message.splitlines() if (line := plain(each)).strip()]
        first = lines[0] if lines else ""
        # "Exception encountered when calling Dense.call().", then the cause, then the arguments.
        return f"{first} {lines[1].strip()}" if first.startswith(_KERAS) and len(lines) > 1 else first


@dataclass(frozen=True)
class ProgressRecord:
    """Progress of a task.

    Attributes:
        dispatches: How many times it has started steps on the devices, since its start.
        step: The number of the last step, as the optimizer or the global step counts, also across restarts; `None` if
            it does not know.
        marks: When it did something for the first time, in seconds since the epoch: "joined" its cluster, entered a
            "run", "restored" a checkpoint, called its first step ("called"), had made it ("stepped").
        log_dir: The log directory of its run, if the program has named one.
    """

    dispatches: int = 0
    step: int | None = None
    marks: dict[str, float] | None = None
    log_dir: str | None = None

    def time(self, mark: str) -> float | None:
        """Returns when the task did this, or None."""
        return (self.marks or {}).get(mark)


# A task may be killed while it writes, and its program may write anything there: a malformed record does not count.
_MALFORMED = (OSError, ValueError, TypeError, KeyError, AttributeError)


def read_error(path: Path) -> ErrorRecord | None:
    """Returns the record in the file, or None if the task wrote none or was killed while it did."""
    try:
        values = _read_json(path)
        return ErrorRecord(
            time=float(values["time"]),
            type=str(values["type"]),
            message=str(values["message"]),
            traceback=str(values["traceback"]),
            secondary=bool(values["secondary"]),
        )
    except _MALFORMED:
        return None


def read_progress(path: Path) -> ProgressRecord | None:
    """Returns the record in the file, or None if there is none, or something else."""
    try:
        values = _read_json(path)
        step = values.get("step")
        marks = {str(name): float(time) for name, time in values["marks"].items()}
        log_dir = values.get("log_dir")
        found = None if log_dir is None else str(log_dir)
        return ProgressRecord(int(values["dispatches"]), None if step is None else int(step), marks, found)
    except _MALFORMED:
        return None


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8", errors="replace"))


class Workspace:
    """A directory of this user alone, below the one for temporary files.

    A cleaner of temporary files may remove it while tasks run: what they write for the launcher is lost without an
    error until it is there again.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._kept: Path | None = None
        self._looked = time.monotonic()

    def attempt(self, number: int) -> Path:
        """Makes and returns the directory of an attempt, which is restored from now on."""
        if not _is_own(self.path) and not _make(self.path):
            # Another user has taken the name meanwhile, so elsewhere.
            parent = self.path.parent
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent if os.access(parent, os.W_OK) else None))
        self._kept = self.path / f"generation-{number}"
        self._kept.mkdir(mode=0o700, exist_ok=True)
        return self._kept

    def restore(self, now: float) -> None:
        """Makes the directory of this attempt again if it has gone; looks once a second."""
        if self._kept is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if not self._kept.exists() and (_is_own(self.path) or _make(self.path)):
            _make(self._kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _make(path: Path) -> bool:
    """Makes a directory that was not there, for this user alone; returns whether that was possible."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError:
        return False
    return True


def _is_own(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    # Not a link, and closed to others: tracebacks and the job's state are nobody else's business.
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
