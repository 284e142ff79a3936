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
    # Empty counts as unset: a shell cannot always remove a variable.
    return Path(os.path.expanduser(text)) if text else None


def find(
    root: Path,
    data_set: str,
    names: Sequence[str],
    setting: str = VARIABLE,
    published: str = "",
    directly: bool = True,
) -> list[Path]:
    """Returns the paths of a data set's files, each as it is or with ".gz" after its name.

    Args:
        root: The directory in which they lie in the directory `data_set`, or directly.
        data_set: The name of the data set.
        names: Of the files.
        setting: What named `root`.
        published: Where the files can be had, for the message.
        directly: Whether they may lie directly in `root` although it has another name than the data set.

    Raises:
        DataNotFoundError: If one is missing; the message names where it was looked for.
    """
    # File names alone do not tell MNIST from Fashion-MNIST; the directory's name does.
    directories = [root / data_set, root] if directly or root.name == data_set else [root / data_set]
    for directory in directories:
        paths_of_all = _find_all(directory, names)
        if paths_of_all:
            return paths_of_all
    origin = f" of {published}" if published else ""
    missing = [[d / name for name in names if not _existing_file(d / name)] for d in directories]
    # The directory that lacks the fewest files is the one that was meant.
    nearest = min(map(len, missing))
    paths = [str(path) for group in missing if len(group) == nearest for path in group]
    raise missing_data_error(
        root,
        f"that holds the files of {data_set}, in {data_set}/{' or directly' if len(directories) > 1 else ''}",
        f"Not there, with or without .gz: {', '.join(paths)}. Put the files{origin} there",
        setting,
    )


def find_directory(root: Path, data_set: str, alternatives: Sequence[str]) -> Path | None:
    """Returns the first of some directories that lie in the directory `data_set` of `root`, or directly in `root`."""
    paths = [directory / name for name in alternatives for directory in (root / data_set, root)]
    return next((path for path in paths if path.is_dir()), None)


def missing_data_error(root: Path, rule: str, remedy: str, setting: str = VARIABLE) -> DataNotFoundError:
    """Returns the error for a directory that lacks a data set; `rule` and `remedy` are parts of sentences."""
    otherwise = f"unset {VARIABLE}" if setting == VARIABLE else f"leave {setting} away"
    return DataNotFoundError(
        f"{setting} must name a directory {rule}. Received: {setting}={root}. {remedy}, or {otherwise}."
    )


def _find_all(directory: Path, names: Sequence[str]) -> list[Path] | None:
    paths = [path for name in names if (path := _existing_file(directory / name))]
    return paths if len(paths) == len(names) else None


def _existing_file(path: Path) -> Path | None:
    # Files are published compressed, and often unpacked by hand.
    compressed = path.with_name(f"{path.name}.gz")
    return next((p for p in (path, compressed) if p.is_file()), None)
