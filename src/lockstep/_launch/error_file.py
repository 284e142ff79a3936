"""What a task that fails writes about it, for the launcher to find the first cause."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast


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
        return _record(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _record(found: Any) -> ErrorRecord:
    values = cast("dict[str, Any]", found)
    return ErrorRecord(
        time=float(values["time"]),
        type=str(values["type"]),
        message=str(values["message"]),
        traceback=str(values["traceback"]),
        secondary=bool(values["secondary"]),
    )
