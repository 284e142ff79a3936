"""Finds data sets in the directory that LOCKSTEP_DATA_DIR names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lockstep.errors import DataNotFoundError

VARIABLE = "LOCKSTEP_DATA_DIR"


def data_dir() -> Path | None:
    """Returns the directory that LOCKSTEP_DATA_DIR names, or `None` if it is not set."""
    text = os.environ.get(VARIABLE)
    return Path(os.path.expanduser(text)) if text else None


def find(root: Path, data_set: str, names: Sequence[str]) -> list[Path]:
    """Returns the paths of a data set's files, each as it is or with ".gz" after its name.

    They lie in the directory `data_set` of `root`, or directly in `root`.

    Raises:
        DataNotFoundError: If one is missing; the message names where it was looked for.
    """
    directories = [root / data_set, root]
    for directory in directories:
        found = [_existing(directory / name) for name in names]
        if all(found):
            return [path for path in found if path]
    missing = [[d / name for name in names if not _existing(d / name)] for d in directories]
    nearest = min(map(len, missing))
    paths = [str(path) for group in missing if len(group) == nearest for path in group]
    raise DataNotFoundError(
        f"{VARIABLE} must name a directory that holds the files of {data_set}, in {data_set}/ or directly. Received: "
        f"{VARIABLE}={root}. Not there, with or without .gz: {', '.join(paths)}. Put the files there, or unset "
        f"{VARIABLE}."
    )


def _existing(path: Path) -> Path | None:
    compressed = path.with_name(f"{path.name}.gz")
    return next((p for p in (path, compressed) if p.is_file()), None)
