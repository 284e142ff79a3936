"""The common end of a job that is asked to end: SIGTERM on any task ends all of them after the same step.

Every task counts what all tasks do alike and in the same order: dispatches of steps, chunks of input, calls such as
`fit`. When one is asked to end, each task freezes its count where it is, says which it is, and waits before the next
one; the highest count of all is the agreed end, which those that are behind still go to. Freezing is done by a thread:
the main thread may be compiling, or inside a collective operation that waits for the others.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from lockstep._engine.runtime import progress_file, sigterm
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.progress import Progress
from lockstep.errors import MissingTaskError, Preempted

if TYPE_CHECKING:
    from lockstep._engine.runtime.control import Control

_DIRECTORY = "preemption"
_LOOK_SECONDS = 0.1
# A task that comes to a run only after the grace waits no longer for those who have gone.
_LATE_SECONDS = 10.0

_local = threading.local()


class Preemption:
    """How one process takes part in the common end.

    Args:
        control: What it says to the others; `None` for a process alone.

    Attributes:
        progress: Where its main thread is.
        count: How much it has done of what all tasks do alike.
        part: Called before the process ends for want of time.
        wake: Called when there is something to say to the others.
    """

    def __init__(self, control: Control | None = None) -> None:
        self.progress = Progress()
        self.count = 0
        self.part: Callable[[], None] = _nothing
        self.wake: Callable[[], None] = _nothing
        self._control = control
        self._grace: float | None = None
        self._changed = threading.Condition()
        self._open = 0
        self._asked: str | None = None
        self._asked_at = 0.0
        self._is_published = False
        self._end: int | None = None
        self._has_ended = False

    @property
    def is_asked(self) -> bool:
        """Whether this process was asked to end, or has heard that another one was."""
        return self._asked is not None

    @property
    def is_pending(self) -> bool:
        """Whether this process was asked to end, and the tasks have not agreed where."""
        return self._asked is not None and self._end is None

    @property
    def has_ended(self) -> bool:
        """Whether training has come to the agreed end."""
        return self._has_ended

    @property
    def grace(self) -> float:
        """Seconds from the request to the end of the process."""
        if self._grace is None:
            self._grace = Limits.from_environment().grace
        return self._grace

    @grace.setter
    def grace(self, seconds: float) -> None:
        self._grace = seconds

    @contextlib.contextmanager
    def run(self) -> Generator[None]:
        """A call that can be ended: while it is open, SIGTERM asks for the common end."""
        if self._is_aside():
            yield
            return
        with self._outermost(), sigterm.heeded(self.ask):
            self._open += 1
            if self._open == 1:
                self.progress.enter()
            progress_file.mark("run")
            try:
                self.gate()
                yield
            except BaseException as error:
                if isinstance(error, Preempted):
                    self.ended()
                progress_file.write(self.progress, at_once=True)
                raise
            finally:
                self._open -= 1

    def gate(self) -> None:
        """Comes before each thing that all tasks do alike, and counts it.

        Raises:
            Preempted: If it is beyond the agreed end; on all tasks before the same one.
            PeerError: If another task fails while this one waits for the agreement.
        """
        if self._is_aside():
            return
        with self._changed:
            if self._asked is None:
                self.count += 1
                return
        self._wait_for_end()
        with self._changed:
            assert self._end is not None
            if self.count < self._end:
                self.count += 1
                return
        raise self._preempted()

    def check(self) -> None:
        """Comes while the next thing has to be waited for; raises `Preempted` if it is beyond the agreed end."""
        if self._end is not None and self.count >= self._end and not self._is_aside():
            raise self._preempted()

    def ended(self) -> None:
        """Says that everything before the agreed end is complete: what follows may take its time."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        sigterm.stay_deaf(self.grace)

    def ask(self, who: str | None = None) -> None:
        """Asks all tasks to end, or hears that `who` has asked; only the first request counts."""
        with self._changed:
            if self._asked is not None:
                return
            self._asked = who or self._me
            self._asked_at = time.monotonic()
            if self._control is None:
                self._end = self.count
            self._changed.notify_all()
        threading.Thread(target=self._expire, name="lockstep-grace", daemon=True).start()
        self.wake()

    def look(self) -> None:
        """Hears what others ask for, and says where this one is; another thread calls it again and again."""
        control = self._control
        if control is None or self._end is not None:
            return
        found = control.listing(_DIRECTORY)
        if self._asked is None and "asked" in found:
            self.ask(found["asked"])
        if self._asked is None:
            return
        if not self._is_published:
            with contextlib.suppress(Exception):  # Somebody was first.
                control.set(f"{_DIRECTORY}/asked", self._asked)
            control.set(f"{_DIRECTORY}/{control.process}", self.count, overwrite=True)
            self._is_published = True
            found = control.listing(_DIRECTORY)
        counts = [int(found[str(i)]) for i in range(len(control.tasks)) if str(i) in found]
        if len(counts) == len(control.tasks):
            with self._changed:
                self._asked, self._end = found.get("asked", self._asked), max(counts)
                self._changed.notify_all()

    def _wait_for_end(self) -> None:
        control = self._control
        while self._end is None:
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)
            if control is not None and self._end is None:
                control.check_peers()
                self._demand_time()

    def _demand_time(self) -> None:
        if time.monotonic() - self._asked_at > self.grace + _LATE_SECONDS:
            raise MissingTaskError(
                f"All tasks must agree where to end within {self.grace:g} s (LOCKSTEP_GRACE) of {self._asked}'s "
                "request to end (SIGTERM). At least one has ended before, or does not answer. Start all tasks again."
            )

    @property
    def _me(self) -> str:
        return "this process" if self._control is None else self._control.tasks[self._control.process]

    def _preempted(self) -> Preempted:
        ended = "has ended after a step" if self._control is None else "all tasks have ended after the same step"
        return Preempted(f"{self._asked} was asked to end (SIGTERM), and {ended}.")

    @contextlib.contextmanager
    def _outermost(self) -> Generator[None]:
        before = getattr(_local, "outermost", None)
        _local.outermost = before or self
        try:
            yield
        finally:
            _local.outermost = before

    def _is_aside(self) -> bool:
        """Whether this is something that one task does by itself in the middle of a run of all."""
        if self._control is not None:
            return False
        outermost = getattr(_local, "outermost", None)
        return outermost is not None and outermost is not self

    def _expire(self) -> None:
        """Ends the process when its time is over, whatever its main thread is in."""
        with self._changed:
            if self._changed.wait_for(lambda: self._has_ended, self.grace) or not self._open:
                return
        print(
            f"lockstep: {self._me} ends, because the {self.grace:g} s that a request to end (SIGTERM, to "
            f"{self._asked}) leaves (LOCKSTEP_GRACE) are over. It is in {self.progress.describe()}. Nothing was saved "
            "since the last checkpoint.",
            file=sys.stderr,
        )
        sys.stdout.flush()
        sys.stderr.flush()
        self.part()
        os._exit(Preempted.exit_code)


def _nothing() -> None:
    pass


# Of all processes that train by themselves, or do something by themselves.
ALONE = Preemption()
