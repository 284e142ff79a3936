"""Preemption: SIGTERM on any task ends all tasks after the same step.

Every task counts sync points, which all tasks pass in the same order: dispatches of steps, chunks of input, calls such
as `fit`. When one is asked to end, each task freezes its count, publishes it, and waits before the next point; the
highest count of all is the agreed end, to which the tasks that are behind still go. A thread freezes the count: the
main thread may be compiling, or inside a collective operation that waits for the others.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from lockstep._engine.runtime import progress, sigterm
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
    """One process' part in the common end.

    Attributes:
        progress: The place of its main thread.
        count: The number of sync points that it has passed.
        shut_down: Called before the process ends because the grace is over.
        wake: Called when there is a message for the others.
    """

    def __init__(self, control: Control | None = None) -> None:
        self.progress = Progress()
        self.count = 0
        self.shut_down: Callable[[], None] = lambda: None
        self.wake: Callable[[], None] = lambda: None
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
        """Returns whether this process was asked to end, or has heard that another one was."""
        return self._asked is not None

    @property
    def is_pending(self) -> bool:
        """Returns whether this process was asked to end, and the tasks have not agreed where."""
        return self._asked is not None and self._end is None

    @property
    def has_ended(self) -> bool:
        """Returns whether training has come to the agreed end."""
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
        """Opens a call that can be preempted: while it is open, SIGTERM asks for the common end."""
        if self._is_aside():
            yield
            return
        with self._outermost(), sigterm.notify(self.request):
            self._open += 1
            if self._open == 1:
                self.progress.enter()
            progress.mark("run")
            try:
                self.sync_point()
                yield
            except BaseException as error:
                if isinstance(error, Preempted):
                    self.mark_ended()
                progress.write_progress(self.progress, at_once=True)
                raise
            finally:
                self._open -= 1

    def sync_point(self) -> None:
        """Counts a sync point; called before each.

        Raises:
            Preempted: If the point is beyond the agreed end; on all tasks before the same point.
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
            if self.count >= self._end:
                raise self._preempted()
            self.count += 1

    def check(self) -> None:
        """Raises `Preempted` if the next sync point is beyond the agreed end; called while that is waited for."""
        if self._end is not None and self.count >= self._end and not self._is_aside():
            raise self._preempted()

    def mark_ended(self) -> None:
        """Notes that everything before the agreed end is complete: the rest of the program may take its time."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        sigterm.ignore_for(self.grace)

    def request(self, who: str | None = None) -> None:
        """Requests the end of all tasks, for this task or for `who`; only the first request counts."""
        with self._changed:
            if self._asked is not None:
                return
            self._asked = who or self._me
            self._asked_at = time.monotonic()
            if self._control is None:
                self._end = self.count
            self._changed.notify_all()
        # The grace counts from the request: SIGKILL follows it, with Kubernetes and Slurm after 30 s.
        threading.Thread(target=self._expire, name="lockstep-grace", daemon=True).start()
        self.wake()

    def poll(self) -> None:
        """Exchanges requests and counts with the others; called by another thread again and again."""
        control = self._control
        if control is None or self._end is not None:
            return
        found = control.listing(_DIRECTORY)
        if self._asked is None and "asked" in found:
            self.request(found["asked"])
        if self._asked is None:
            return
        if not self._is_published:
            with contextlib.suppress(Exception):  # Another task was first.
                control.set(f"{_DIRECTORY}/asked", self._asked)
            control.set(f"{_DIRECTORY}/{control.process}", self.count, overwrite=True)
            self._is_published = True
            found = control.listing(_DIRECTORY)
        # The highest count: every task can still reach it, and none has passed it.
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
            if control is None or self._end is not None:
                continue
            control.check_peers()
            if time.monotonic() - self._asked_at > self.grace + _LATE_SECONDS:
                raise MissingTaskError(
                    f"All tasks must agree where to end within {self.grace:g} s (LOCKSTEP_GRACE) of {self._asked}'s "
                    "request to end (SIGTERM). At least one has ended before, or does not answer. Start all tasks "
                    "again."
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
        """Returns whether this task does something by itself in the middle of a run of all."""
        if self._control is not None:
            return False
        outermost = getattr(_local, "outermost", None)
        return outermost is not None and outermost is not self

    def _expire(self) -> None:
        """Ends the process when its grace is over, whatever its main thread is in."""
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
        self.shut_down()
        os._exit(Preempted.exit_code)


# Of all that this process does by itself.
ALONE = Preemption()
