"""Small files by which a task reports to the launcher."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import Any

_ERROR_FILE = "LOCKSTEP_ERROR_FILE"

# The main thread and the heartbeat can find the same failure at the same moment, and both write a report of it.
# Reentrant: a report is one of these files.
_WRITING = threading.RLock()


def has_error_file() -> bool:
    """Returns whether a launcher waits for a report of this task's error."""
    return bool(os.environ.get(_ERROR_FILE))


def write_error_file(task: str, kind: str, message: str, trace: str, secondary: bool) -> None:
    """Writes the error report that `lockstep run` reads; the first report of a process stays."""
    path = os.environ.get(_ERROR_FILE)
    if not path:
        return
    report = {"task": task, "time": time.time(), "type": kind, "message": message, "traceback": trace}
    with _WRITING:
        if not os.path.exists(path):
            write_json(path, {**report, "secondary": secondary})


def write_json(path: str, record: dict[str, Any]) -> None:
    """Writes a file for the launcher."""
    # Renamed into place, so that the launcher reads all of it or nothing. A disk that is full must not end the task.
    with contextlib.suppress(OSError), _WRITING:
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(partial, path)
