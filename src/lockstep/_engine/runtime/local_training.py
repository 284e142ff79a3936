"""Warnings of a training that each worker of a cluster does alone; and the user's own line, for messages.

Nothing is wrong with such a training but that it is not the one of all workers: each trains the whole model on all the
data, and all but one of the results are lost. So it is worth a warning, once, and no error.
"""

from __future__ import annotations

import os
import traceback
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A directory, not a name: the user's own files may lie in another one that is called lockstep.
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


@dataclass
class _Joined:
    """Strategy with which this process has joined its cluster."""

    strategy: weakref.ref[Any]  # It must not keep the strategy alive: see `warn`.
    name: str
    workers: int
    is_used: bool = False
    has_warned: bool = False


_joined: _Joined | None = None


def note_join(strategy: Any, workers: int) -> None:
    """Notes that this process trains with others from now on."""
    global _joined
    _joined = _Joined(weakref.ref(strategy), type(strategy).__name__, workers)


def has_joined() -> bool:
    """Returns whether this process trains with others."""
    return _joined is not None


def note_scope(strategy: Any) -> None:
    """Notes that a scope of a strategy was opened."""
    if _joined is not None and _joined.strategy() is strategy:
        _joined.is_used = True


def warn(what: str, remedy: str) -> None:
    """Warns, the first time, that `what` trains on this worker alone; `remedy` says how to train it on all workers."""
    found = _joined
    # A program that has used its strategy and let go of it trains alone because it means to.
    if found is None or found.has_warned or (found.is_used and found.strategy() is None):
        return
    found.has_warned = True
    warnings.warn(
        f"{what} does not belong to {found.name}: each of the {found.workers} workers trains all of it alone, on all "
        f"the data. {remedy} If each worker is to train alone, let lockstep.distribute.OneDeviceStrategy say so.",
        stacklevel=1 + _user_frame()[0],
    )


def user_line() -> str:
    """Returns "file:line (source)" of the innermost frame outside this package."""
    _, frame = _user_frame()
    return f"{frame.filename}:{frame.lineno} (`{frame.line}`)" if frame else "this line"


def _user_frame() -> tuple[int, traceback.FrameSummary | None]:
    """Returns the innermost frame outside this package, and how many frames lie between it and the caller."""
    stack = traceback.extract_stack()[:-2]
    frames = ((i, f) for i, f in enumerate(reversed(stack), 1) if not f.filename.startswith(_PACKAGE))
    return next(frames, (0, None))
