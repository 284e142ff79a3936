"""What a task writes about how far it is, for the launcher to judge failures by, and to time restarts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast


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
        return _record(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _record(found: Any) -> ProgressRecord:
    values = cast("dict[str, Any]", found)
    step = values.get("step")
    marks = {str(name): float(time) for name, time in values["marks"].items()}
    return ProgressRecord(int(values["dispatches"]), None if step is None else int(step), marks)
