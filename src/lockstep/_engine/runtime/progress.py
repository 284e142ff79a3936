"""Progress of the main thread of a task: its place, its steps, its time, and its dispatches in flight.

The main thread only sets attributes. Others read them: the heartbeat, which sends them to the other tasks, and the
launcher through a small file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from lockstep._engine.runtime import launcher_files

# Places of the main thread. In the first three it waits for something that other tasks may hold up.
AGREEING = "an agreement with the other tasks"
DEVICES = "a wait for steps on the devices"
AWAITING = "a wait for the input of the other tasks"
READING = "a wait for its own input"
# Where the devices of this process run it at once, this too is a wait for the devices of others.
STEP = "the call of a step, or its compilation"
CALLBACKS = "callbacks or hooks"
SAVING = "checkpoints"
ELSEWHERE = "the program, between steps"
# Between the calls of a loop of one's own, where nothing is waited for.
OUTSIDE = "the program, outside of any call"
WAITS = frozenset({AGREEING, DEVICES, AWAITING})
OWN = frozenset({READING, CALLBACKS, SAVING, ELSEWHERE})
# A phase of a training, whose time and steps count apart from those of the training.
EVALUATION = "evaluation"

_PROGRESS_FILE = "LOCKSTEP_PROGRESS_FILE"
_MOST_NOTES = 100
# Between two writes: steps may take less than a millisecond, and the file is renamed into place each time.
_PROGRESS_SECONDS = 1.0

_marks: dict[str, float] = {}
_written = -_PROGRESS_SECONDS


class Progress:
    """Progress of the main thread, as it notes it.

    Attributes:
        where: One of the places above.
        since: Since when, by the monotonic clock.
        thread: The identity of the thread that runs the steps.
        spent: Seconds in each place where this task alone decides how long it takes.
        totals: Seconds in every place, and those of a phase under its name instead.
        phase: The phase of the training, if it is in one: `EVALUATION`.
        dispatches: The number of dispatches.
        step: The number of the last step that was dispatched, counted by the optimizer or the global step; `None`
            while it is not known.
        steps: The number of steps of training that this process has dispatched.
        outputs: The outputs of the last dispatch of a training, still on the devices, and the number of its last step.
        log_dir: The log directory of the run, once a training has named one.
        buffered: Returns how many chunks of batches are read ahead, while data are read.
        notes: The last sentences for the record of the run, which takes them.
    """

    def __init__(self) -> None:
        self.where = ELSEWHERE
        self.since = time.monotonic()
        self.thread = threading.get_ident()
        self.spent = dict.fromkeys(OWN, 0.0)
        self.totals: dict[str, float] = {}
        self.phase: str | None = None
        self.dispatches = 0
        self.step: int | None = None
        self.steps = 0
        self.outputs: tuple[Any, int] | None = None
        self.log_dir: str | None = None
        self.buffered: Callable[[], int] | None = None
        # Bounded: a run without a log directory takes none of them.
        self.notes: deque[str] = deque(maxlen=_MOST_NOTES)

    def enter(self) -> None:
        """Starts a run, in this thread."""
        self.where, self.since = ELSEWHERE, time.monotonic()
        self.thread = threading.get_ident()

    def at(self, where: str) -> str:
        """Notes where the main thread is from now on; returns where it was."""
        now = time.monotonic()
        before = self.where
        elapsed = now - self.since
        if before in OWN:
            self.spent[before] += elapsed
        key = self.phase or before
        self.totals[key] = self.totals.get(key, 0.0) + elapsed
        self.where, self.since = where, now
        return before

    def still_at(self, where: str) -> None:
        """Notes the place again; its time counts from the beginning unless the place has changed."""
        if where != self.where:
            self.at(where)

    @contextlib.contextmanager
    def being(self, where: str) -> Generator[None]:
        """Notes the place of the main thread while this is open."""
        before = self.at(where)
        try:
            yield
        finally:
            self.at(before)

    @contextlib.contextmanager
    def in_phase(self, phase: str) -> Generator[None]:
        """Charges the time while this is open to a phase, wherever the main thread is."""
        self.at(self.where)
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.at(self.where)
            self.phase = before

    def begin(self, step: int | None) -> None:
        """Starts a loop at this step, if that is known."""
        if step is not None:
            self.step = step

    def dispatched(self, steps: int) -> None:
        """Counts a dispatch of so many steps."""
        self.dispatches += 1
        # An evaluation makes steps of its own, which the optimizer does not count.
        if self.phase is not None:
            return
        self.steps += steps
        if self.step is not None:
            self.step += steps

    @property
    def last_step(self) -> int:
        """Returns the number of the last step; where none is counted by an optimizer, of this process."""
        return self.steps if self.step is None else self.step

    def seconds(self) -> float:
        """Returns for how long the main thread has been in its place."""
        return time.monotonic() - self.since

    def account(self) -> dict[str, Any]:
        """Returns the progress as JSON, for the other tasks."""
        where, seconds = self.where, self.seconds()
        spent = {place: value + (seconds if place == where else 0.0) for place, value in self.spent.items()}
        return {
            "where": where,
            "seconds": round(seconds, 3),
            "spent": {place: round(value, 3) for place, value in spent.items()},
            "dispatches": self.dispatches,
        }

    def note(self, text: str) -> None:
        """Notes a sentence for the record of the run; called by any thread."""
        self.notes.append(text)

    def charged(self) -> dict[str, float]:
        """Returns seconds in every place up to now, as `totals`; called by any thread."""
        key, seconds = self.phase or self.where, self.seconds()
        totals = dict(self.totals)
        totals[key] = totals.get(key, 0.0) + seconds
        return totals

    def describe(self) -> str:
        """Describes the place, and for how long the main thread has been there."""
        return f"{self.where} for {self.seconds():.1f} s"


# Dispatches that may be in flight: the next call waits for the oldest, and can then say why it has failed.
_MAX_IN_FLIGHT = 8


class InFlight:
    """Dispatches in flight: an array of the results of each."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()

    def add(self, result: Any) -> None:
        """Adds an array of a dispatch."""
        self._waiting.append(result)

    def settle(self) -> None:
        """Waits until few are in flight; raises the error of any that has failed."""
        waiting = self._waiting
        while waiting and (len(waiting) > _MAX_IN_FLIGHT or is_done(waiting[0])):
            result = waiting.popleft()
            if not result.is_deleted():
                result.block_until_ready()


def is_done(result: Any) -> bool:
    """Returns whether an array is computed, as those of the host are.

    A donated one counts as computed: a later dispatch owns it.
    """
    try:
        return not hasattr(result, "is_ready") or result.is_ready()
    except RuntimeError:  # It is deleted, maybe just now by another thread.
        return True


def mark(name: str) -> None:
    """Notes when something happens for the first time: "joined", "run", "restored", "called", "stepped"."""
    _marks.setdefault(name, round(time.time(), 3))


def marks() -> dict[str, float]:
    """Returns the times, in seconds since the epoch, of what `mark` was called with."""
    return dict(_marks)


def has_mark(name: str) -> bool:
    """Returns whether `mark` was called with this name."""
    return name in _marks


def write_progress(progress: Progress, at_once: bool = False) -> None:
    """Writes the progress file, if the launcher asked for one and it was not written within the last second."""
    global _written
    path = os.environ.get(_PROGRESS_FILE)
    if not path or (not at_once and time.monotonic() - _written < _PROGRESS_SECONDS):
        return
    _written = time.monotonic()
    record: dict[str, Any] = {
        "dispatches": progress.dispatches,
        "step": progress.step,
        "marks": _marks,
        "time": time.time(),
    }
    record["log_dir"] = progress.log_dir
    launcher_files.write_json(path, record)
