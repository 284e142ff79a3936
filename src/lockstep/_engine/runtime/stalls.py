"""Finds out that this task's main thread does not go on, and where it is stuck."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.progress import READING, STEP, WAITS, Progress

_FRAMES = 12
_READER = "lockstep-reader"


def stall(me: str, progress: Progress, limits: Limits) -> tuple[str, str] | None:
    """Returns what to tell of a main thread that has been in one place for too long, and its stack; or `None`.

    What waits for other tasks gets longer than any of them: they know better what they are in.
    """
    where, seconds = progress.where, progress.seconds()
    limit, setting = limits.progress, "LOCKSTEP_PROGRESS_TIMEOUT"
    if where == STEP:
        limit, setting = limits.compile, "LOCKSTEP_COMPILE_TIMEOUT"
    elif where in WAITS:
        limit, setting = limits.compile + limits.progress, "LOCKSTEP_COMPILE_TIMEOUT and LOCKSTEP_PROGRESS_TIMEOUT"
    if seconds <= limit:
        return None
    told = (
        f"Training must go on within {limit:g} s ({setting}). {me} has been in {where} for {seconds:.0f} s. If that is "
        "as it should be, raise the limit; otherwise this is where its main thread is:"
    )
    return told, stacks(progress)


def behind(accounts: Mapping[int, Mapping[str, Any]], tasks: Sequence[str]) -> str:
    """Says how far each task is, the last one first."""
    order = sorted(accounts, key=lambda i: accounts[i].get("dispatches", 0))
    return "; ".join(
        f"{tasks[i]} after {accounts[i]['dispatches']} dispatches in {accounts[i]['where']}"
        for i in order
        if "where" in accounts[i]
    )


def stacks(progress: Progress) -> str:
    """Returns the innermost frames of the main thread; of the reading thread too, if it waits for that."""
    found = _stack(progress.thread)
    readers = [t.ident for t in threading.enumerate() if t.name == _READER and t.ident is not None]
    if progress.where == READING:
        found += "".join(f"and its reader at:\n{_stack(ident)}" for ident in readers)
    return found


def _stack(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return "  (it has ended)\n"
    return "".join(traceback.format_list(traceback.extract_stack(frame)[-_FRAMES:]))
