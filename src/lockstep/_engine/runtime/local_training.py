"""Warns of a training that each worker of a cluster does alone, because it was not said to belong to the strategy.

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

_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


@dataclass
class _Joined:
    """The strategy with which this process has joined its cluster.

    Attributes:
        strategy: While the program holds it.
        name: Of its type.
        workers: How many processes train together.
        is_used: Whether its scope was ever opened.
        has_warned: Whether a training was warned of.
    """

    strategy: weakref.ref[Any]
    name: str
    workers: int
    is_used: bool = False
    has_warned: bool = False


_joined: _Joined | None = None


def note_join(strategy: Any, workers: int) -> None:
    """Notes that this process trains with others from now on."""
    global _joined
    _joined = _Joined(weakref.ref(strategy), type(strategy).__name__, workers)


def note_scope(strategy: Any) -> None:
    """Notes that a scope of a strategy was opened."""
    if _joined is not None and _joined.strategy() is strategy:
        _joined.is_used = True


def warn(what: str, remedy: str) -> None:
    """Warns, the first time, that `what` trains on this worker alone; not in a process that trains by itself anyway.

    A program that has used its strategy and let go of it trains alone because it means to.

    Args:
        what: What trains.
        remedy: How to train it on all workers.
    """
    found = _joined
    if found is None or found.has_warned or (found.is_used and found.strategy() is None):
        return
    found.has_warned = True
    warnings.warn(
        f"{what} does not belong to {found.name}: each of the {found.workers} workers trains all of it alone, on all "
        f"the data. {remedy} If each worker is to train alone, let lockstep.distribute.OneDeviceStrategy say so.",
        stacklevel=_levels(),
    )


def _levels() -> int:
    """Returns the stack level, for `warnings.warn`, of the innermost frame outside of this package."""
    stack = traceback.extract_stack()
    return 1 + next((i for i, f in enumerate(reversed(stack[:-1])) if not f.filename.startswith(_PACKAGE)), 0)
