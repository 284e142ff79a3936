"""A file that is there whole, or as it was before."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator
from pathlib import Path


def unfinished(target: Path) -> Path:
    """Returns a name beside `target`, on the same file system, for what will become it."""
    return target.with_name(f".{target.name}.unfinished-{uuid.uuid4().hex[:8]}")


@contextlib.contextmanager
def whole_file(target: Path, suffix: str = "") -> Generator[Path]:
    """Gives a path to write to; when the block ends well, what was written becomes `target` in one step.

    Args:
        target: The file. Its directory is created.
        suffix: What the name of the temporary file ends in, for writers that look at it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = unfinished(target)
    temporary = temporary.with_name(temporary.name + suffix)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
