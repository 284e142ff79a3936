"""Where the main thread of a task is, how far it has come, and what it spends its time on.

The main thread only sets attributes. Others read them: the watchdog, which tells the other tasks, and the launcher
through a small file.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator
from typing import Any

# Places of the main thread. In the first three it waits for something that other tasks may hold up.
AGREEING = "an agreement with the other tasks"
DEVICES = "a wait for steps on the devices"
AWAITING = "a wait for the input of the other tasks"
READING = "a wait for its own input"
# Where the devices of this process run it at once, this too is a wait for the devices of others.
STEP = "the call of a step, or its compilation"
CALLBACKS = "callbacks or hooks"
ELSEWHERE = "the program, between steps"
# Between the calls of a loop of one's own, where nothing is waited for.
OUTSIDE = "the program, outside of any call"
WAITS = frozenset({AGREEING, DEVICES, AWAITING})
_OWN = frozenset({READING, CALLBACKS, ELSEWHERE})


class Progress:
    """The main thread's own account.

    Attributes:
        where: One of the places above.
        since: Since when, by the monotonic clock.
        thread: The identity of the thread that runs the steps.
        spent: Seconds in each place where this task alone decides how long it takes.
        dispatches: How many dispatches have been started.
        step: The number of the last step that was started, counted by the optimizer or the global step; `None` as long
            as it is not known.
    """

    def __init__(self) -> None:
        self.where = ELSEWHERE
        self.since = time.monotonic()
        self.thread = threading.get_ident()
        self.spent = dict.fromkeys(_OWN, 0.0)
        self.dispatches = 0
        self.step: int | None = None

    def enter(self) -> None:
        """A run starts, in this thread."""
        self.where, self.since = ELSEWHERE, time.monotonic()
        self.thread = threading.get_ident()

    def at(self, where: str) -> str:
        """Notes where the main thread is from now on; returns where it was."""
        now = time.monotonic()
        before = self.where
        if before in _OWN:
            self.spent[before] += now - self.since
        self.where, self.since = where, now
        return before

    def still_at(self, where: str) -> None:
        """Notes whose fault a wait is by now; how long it lasts counts from its beginning unless that changes."""
        if where != self.where:
            self.at(where)

    @contextlib.contextmanager
    def being(self, where: str) -> Generator[None]:
        """While open, the main thread is there."""
        before = self.at(where)
        try:
            yield
        finally:
            self.at(before)

    def begin(self, step: int | None) -> None:
        """A loop starts at this step, if that is known."""
        if step is not None:
            self.step = step

    def dispatched(self, steps: int) -> None:
        """A dispatch of so many steps has been started."""
        self.dispatches += 1
        if self.step is not None:
            self.step += steps

    def seconds(self) -> float:
        """For how long the main thread has been where it is."""
        return time.monotonic() - self.since

    def account(self) -> dict[str, Any]:
        """What other tasks are told."""
        where, seconds = self.where, self.seconds()
        spent = {place: value + (seconds if place == where else 0.0) for place, value in self.spent.items()}
        return {
            "where": where,
            "seconds": round(seconds, 3),
            "spent": {place: round(value, 3) for place, value in spent.items()},
            "dispatches": self.dispatches,
        }

    def describe(self) -> str:
        """Where it is, and for how long."""
        return f"{self.where} for {self.seconds():.1f} s"
