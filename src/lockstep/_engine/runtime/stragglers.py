"""Stragglers: names a task that slows the others down, and finds a main thread that is stuck.

Tasks that train together make the same steps in the same time, whoever is slow: only what each does meanwhile differs.
A task that spends most of its time on its own input or in its own callbacks, while all others spend little on theirs,
is the one that they wait for.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.progress import READING, STEP, WAITS, Progress

_log = logging.getLogger("lockstep")

_WINDOW_SECONDS = 10.0
_WARN_SECONDS = 60.0
# A straggler spends at least this part of the time by itself, and so many times as much as any other task.
_SHARE = 0.5
_TIMES = 3.0


class Stragglers:
    """Compares the progress of the tasks from one heartbeat to the next."""

    def __init__(
        self,
        tasks: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._tasks = tasks
        self._note = note
        self._clock = clock
        self._begin: tuple[float, dict[int, dict[str, float]]] | None = None
        self._warned = -_WARN_SECONDS

    def update(self, accounts: Mapping[int, Mapping[str, Any]]) -> None:
        """Warns of a task that held the others up for ten seconds, at most once a minute; takes each `account()`."""
        now = self._clock()
        spent = {i: dict(a["spent"]) for i, a in accounts.items() if "spent" in a}
        if self._begin is None or len(spent) < len(self._tasks):
            self._begin = (now, spent) if len(spent) == len(self._tasks) else None
            return
        began, before = self._begin
        if now - began < _WINDOW_SECONDS:
            return
        self._begin = now, spent
        found = self._slowest(before, spent, now - began)
        if found is not None and now - self._warned >= _WARN_SECONDS:
            self._warned = now
            _log.warning("%s", found)
            if self._note is not None:
                self._note(found)

    def reset(self) -> None:
        """Starts anew: no task depends on another."""
        self._begin = None

    def _slowest(
        self, before: Mapping[int, Mapping[str, float]], after: Mapping[int, Mapping[str, float]], seconds: float
    ) -> str | None:
        own = {i: sum(after[i].values()) - sum(before[i].values()) for i in after}
        slow, *others = sorted(own, key=lambda i: -own[i])
        if own[slow] < _SHARE * seconds or own[slow] < _TIMES * own[others[0]]:
            return None
        place = max(after[slow], key=lambda p: after[slow][p] - before[slow].get(p, 0.0))
        return (
            f"{self._tasks[slow]} holds the others up: of the last {seconds:.0f} s it spent {own[slow]:.1f} s by "
            f"itself, mostly in {place}; {self._tasks[others[0]]} spent {own[others[0]]:.1f} s. Training goes on."
        )


# Enough to see the user's line below those of Keras or of a data loader.
_FRAMES = 12
_READER = "lockstep-reader"


def stall(me: str, progress: Progress, limits: Limits) -> tuple[str, str] | None:
    """Returns the error of a main thread that has been in one place for too long, and its stack; or `None`."""
    where, seconds = progress.where, progress.seconds()
    limit, setting = limits.progress, "LOCKSTEP_PROGRESS_TIMEOUT"
    if where == STEP:
        limit, setting = limits.compile, "LOCKSTEP_COMPILE_TIMEOUT"
    elif where in WAITS:
        # More than any task gets for work of its own: the one that is waited for knows better where it is stuck.
        limit, setting = limits.compile + limits.progress, "LOCKSTEP_COMPILE_TIMEOUT and LOCKSTEP_PROGRESS_TIMEOUT"
    if seconds <= limit:
        return None
    message = (
        f"Training must go on within {limit:g} s ({setting}). {me} has been in {where} for {seconds:.0f} s. If that is "
        "as it should be, raise the limit; otherwise this is where its main thread is:"
    )
    return message, stacks(progress)


def behind(accounts: Mapping[int, Mapping[str, Any]], tasks: Sequence[str]) -> str:
    """Describes how far each task is, the last one first."""
    order = sorted(accounts, key=lambda i: accounts[i].get("dispatches", 0))
    return "; ".join(
        f"{tasks[i]} after {accounts[i]['dispatches']} dispatches in {accounts[i]['where']}"
        for i in order
        if "where" in accounts[i]
    )


def stacks(progress: Progress) -> str:
    """Returns the innermost frames of the main thread, and of the input's reading thread if it waits for that."""
    found = _stack(progress.thread)
    readers = [t.ident for t in threading.enumerate() if t.name == _READER and t.ident is not None]
    if progress.where == READING:
        found += "".join(f"and its reader at:\n{_stack(ident)}" for ident in readers)
    return found


def _stack(thread: int) -> str:
    # A garbage collection within the call below that frees a `threading.local` waits for the lock that the call itself
    # holds, for ever (python/cpython#106883).
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        # The only way to another thread's stack without a signal.
        frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    finally:
        if was_enabled:
            gc.enable()
    if frame is None:
        return "  (it has ended)\n"
    return "".join(traceback.format_list(traceback.extract_stack(frame)[-_FRAMES:]))
