"""Small files for the launcher: whoever reads one sees all of it, or nothing."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any


def write(path: str, record: Any) -> None:
    """Writes JSON; where that is impossible, nothing: what a task does for the launcher must not end it."""
    with contextlib.suppress(OSError):
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(partial, path)
