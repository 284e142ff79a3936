"""Reading whole checkpoints."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._names import file_of, prefix_of
from lockstep.checkpoint._newest import newest


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What was saved.

    Attributes:
        prefix: The checkpoint's name.
        step: Its step.
        arrays: numpy arrays by name, in the order in which they were saved.
        extra: The JSON that was kept beside them.
        time: When it was written, in seconds since the epoch.
    """

    prefix: str
    step: int
    arrays: dict[str, NDArray[Any]]
    extra: dict[str, Any]
    time: float


def load(prefix: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint, and verifies the checksum of every part.

    Args:
        prefix: The checkpoint's name.

    Raises:
        CheckpointError: If it is not there, or is damaged; it names file, variable and cause.
    """
    with Archive(file_of(prefix)) as archive:
        manifest = archive.manifest
        arrays = {key: archive.read(key) for key in manifest.layouts}
    return Checkpoint(prefix_of(prefix), manifest.step, arrays, manifest.extra, manifest.time)


def load_newest(directory: str | os.PathLike[str], strict: bool = False) -> Checkpoint | None:
    """Reads the newest checkpoint of a directory that is not damaged; the log warns of each one passed over.

    Args:
        directory: The directory.
        strict: Whether none may be passed over.

    Returns:
        The checkpoint, or `None` if there is none.

    Raises:
        CheckpointError: If the directory cannot be read; or, if `strict`, the newest one is damaged, or the file that
            lists them is.
    """
    return newest(directory, load, strict=strict)
