"""Atomic replacement of a file."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from lockstep.checkpoint import _atomic
from lockstep.checkpoint._unwritable import naming


@contextlib.contextmanager
def whole_file(target: Path, suffix: str = "") -> Generator[Path]:
    """Gives a path to write to; when the block ends well, what was written becomes `target` in one step.

    Args:
        target: The file. Its directory is created.
        suffix: What the name of the temporary file ends in, for writers that look at it.

    Raises:
        CheckpointError: If it cannot be written.
    """
    with naming(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        _atomic.remove_leftovers(str(target.parent), suffix)
    with naming(str(target)), _atomic.replaced(str(target), suffix) as temporary:
        yield Path(temporary)
