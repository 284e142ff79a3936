"""What a task writes for the launcher about how far it is: at its first step, and from then on about once a second."""

from __future__ import annotations

import os
import time

from lockstep._engine.runtime import whole_file
from lockstep._engine.runtime.progress import Progress

_VARIABLE = "LOCKSTEP_PROGRESS_FILE"
_SECONDS = 1.0

_marks: dict[str, float] = {}
_written = -_SECONDS


def mark(name: str) -> None:
    """Notes when something happens for the first time: "joined", "run", "restored", "called", "stepped"."""
    _marks.setdefault(name, round(time.time(), 3))


def has(name: str) -> bool:
    """Whether it has happened."""
    return name in _marks


def write(progress: Progress, at_once: bool = False) -> None:
    """Writes the file, if there is to be one, and it was not just written."""
    global _written
    path = os.environ.get(_VARIABLE)
    if not path or (not at_once and time.monotonic() - _written < _SECONDS):
        return
    _written = time.monotonic()
    record = {"dispatches": progress.dispatches, "step": progress.step, "marks": _marks, "time": time.time()}
    whole_file.write(path, record)
