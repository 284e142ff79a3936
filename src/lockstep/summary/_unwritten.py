"""Logs that cannot be written."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator

_log = logging.getLogger("lockstep")


def warn(path: str | os.PathLike[str], error: Exception) -> None:
    """Warns that a log could not be written."""
    _log.warning(
        "%s could not be written: %s. Training goes on without it. Free space, or log to a directory that can be "
        "written to.",
        os.fspath(path),
        str(error).removesuffix("."),
    )


@contextlib.contextmanager
def goes_on_without(path: str | os.PathLike[str]) -> Generator[None]:
    """Turns an error of writing logs to `path` into a warning: what is logged must not end a training."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # JAX' profiler raises the latter, for each status of its own.
        warn(path, error)
