"""Errors of writing, with the path."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from lockstep.errors import CheckpointError


@contextmanager
def naming(path: str) -> Generator[None]:
    """Turns an error of writing to a disk into one that names `path`, which the system's own often does not.

    Args:
        path: The path, or words that hold it.

    Raises:
        CheckpointError: Instead of `OSError`, and of the plain `RuntimeError` that h5py raises on a full disk.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not isinstance(error, OSError) and type(error) is not RuntimeError:
            raise
        raise CheckpointError(
            f"{path} could not be written: {str(error).removesuffix('.')}. What was saved before is intact. Free "
            "space, or give a path in a directory that can be written to."
        ) from error
