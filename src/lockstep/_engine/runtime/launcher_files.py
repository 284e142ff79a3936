"""Small files by which a task reports to the launcher: its error, and its progress about once a second."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from lockstep._engine.runtime.progress import Progress

_ERROR_FILE = "LOCKSTEP_ERROR_FILE"
_PROGRESS_FILE = "LOCKSTEP_PROGRESS_FILE"
# Between two writes: steps may take less than a millisecond, and the file is renamed into place each time.
_PROGRESS_SECONDS = 1.0

_marks: dict[str, float] = {}
_written = -_PROGRESS_SECONDS


def mark(name: str) -> None:
    """Notes when something happens for the first time: "joined", "run", "restored", "called", "stepped"."""
    _marks.setdefault(name, round(time.time(), 3))


def has_mark(name: str) -> bool:
    """Returns whether `mark` was called with this name."""
    return name in _marks


def write_progress(progress: Progress, at_once: bool = False) -> None:
    """Writes the progress file, if the launcher asked for one and it was not written within the last second."""
    global _written
    path = os.environ.get(_PROGRESS_FILE)
    if not path or (not at_once and time.monotonic() - _written < _PROGRESS_SECONDS):
        return
    _written = time.monotonic()
    record = {"dispatches": progress.dispatches, "step": progress.step, "marks": _marks, "time": time.time()}
    _write_json(path, record)


def has_error_file() -> bool:
    """Returns whether a launcher waits for a report of this task's error."""
    return bool(os.environ.get(_ERROR_FILE))


def write_error_file(task: str, kind: str, message: str, trace: str, secondary: bool) -> None:
    """Writes the error report that `lockstep run` reads; the first report of a process stays."""
    path = os.environ.get(_ERROR_FILE)
    if not path or os.path.exists(path):
        return
    report = {"task": task, "time": time.time(), "type": kind, "message": message, "traceback": trace}
    _write_json(path, {**report, "secondary": secondary})


def _write_json(path: str, record: dict[str, Any]) -> None:
    # Renamed into place, so that the launcher reads all of it or nothing. A disk that is full must not end the task.
    with contextlib.suppress(OSError):
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(partial, path)
