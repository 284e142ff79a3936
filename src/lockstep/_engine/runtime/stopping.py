"""Early stopping: a training that a callback of any task stops, ends on all tasks after the same step.

Every task counts the points at which training may stop, which all tasks pass alike. A task that wants to stop
publishes the first point at which it can, and waits. The others receive it within a second, whatever their main threads
are in, and publish theirs; the last of these points is the end. So tasks that all want to stop at one point stop there,
as one device would; otherwise those that are behind go on to where the first one is.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep._engine.runtime import progress
from lockstep.errors import MissingTaskError

if TYPE_CHECKING:
    from lockstep._engine.runtime.control import Control, Run

_DIRECTORY = "stop"
_POLL_SECONDS = 0.01


@dataclass
class _Training:
    """Agreement on the point after which one run stops.

    Attributes:
        passed: The number of points that this task has passed.
        stops: How often all tasks have stopped in this run.
        is_published: Set once this task has published its next point.
        end: The point after which all stop, once it is known.
    """

    passed: int = 0
    stops: int = 0
    is_published: bool = False
    end: int | None = None


class Stopping:
    """One task's part in the agreement, by the messages of `control`."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._trainings: dict[Run, _Training] = {}
        self._lock = threading.Lock()

    def stops_here(self, run: Run, wants: bool, seconds: float) -> bool:
        """Passes the next point of a run, on the main thread; returns whether all tasks stop there.

        Raises:
            MissingTaskError: If one does not answer in time.
            PeerError: If one has failed or left.
        """
        with self._lock:
            training = self._trainings.setdefault(run, _Training())
            if not wants and not training.is_published:
                training.passed += 1
                return False
        self._publish(run, training)
        with self._control.preemption.progress.being(progress.AGREEING):
            end = self._end(run, training, seconds)
        with self._lock:
            if training.passed + 1 >= end:
                self._trainings[run] = _Training(training.passed + 1, training.stops + 1)
                return True
            training.passed += 1
            return False

    def poll(self) -> None:
        """Answers the others' requests to stop; called by another thread again and again."""
        runs = self._control.runs
        with self._lock:
            self._trainings = {run: self._trainings.get(run) or _Training() for run in runs}
            trainings = dict(self._trainings)
        if not runs:
            return
        asked = {name.rpartition("-")[0] for name in self._control.listing(_DIRECTORY)}
        for run, training in trainings.items():
            if _name(run, training) in asked:
                self._publish(run, training)

    def _publish(self, run: Run, training: _Training) -> None:
        # By the main thread or the heartbeat's, whichever comes first.
        with self._lock:
            if training.is_published:
                return
            training.is_published, point = True, training.passed + 1
        self._control.set(f"{_DIRECTORY}/{_name(run, training)}-{self._control.process}", point)

    def _end(self, run: Run, training: _Training, seconds: float) -> int:
        tasks, deadline = self._control.tasks, time.monotonic() + seconds
        start = f"{_name(run, training)}-"
        while training.end is None:
            listing = self._control.listing(_DIRECTORY)
            found = {name.removeprefix(start): point for name, point in listing.items() if name.startswith(start)}
            if len(found) == len(tasks):
                training.end = max(map(int, found.values()))
                return training.end
            self._control.check_peers()
            if time.monotonic() > deadline:
                missing = ", ".join(name for i, name in enumerate(tasks) if str(i) not in found)
                raise MissingTaskError(
                    f"All tasks stop {run.doing} after the same step, and must say within {seconds:g} s "
                    f"(LOCKSTEP_PEER_TIMEOUT) where they are. Missing: {missing}. Look at what they are doing."
                )
            time.sleep(_POLL_SECONDS)
        return training.end


def _name(run: Run, training: _Training) -> str:
    return f"{run.number}-{training.stops}"
