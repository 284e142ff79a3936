"""Time limits of every wait, in seconds, from the environment; and deadlines that report who is waited for."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from lockstep.errors import ArgumentError

_log = logging.getLogger("lockstep")
_VARIABLES = {
    "join": "LOCKSTEP_JOIN_TIMEOUT",
    "peer": "LOCKSTEP_PEER_TIMEOUT",
    "silence": "LOCKSTEP_SILENCE_TIMEOUT",
    "leave": "LOCKSTEP_LEAVE_TIMEOUT",
    "grace": "LOCKSTEP_GRACE",
    "progress": "LOCKSTEP_PROGRESS_TIMEOUT",
    "compile": "LOCKSTEP_COMPILE_TIMEOUT",
}
_REPORT_SECONDS = 10.0
# Between two attempts to look a name up, or to connect.
_RETRY_SECONDS = 0.1


@dataclass(frozen=True)
class Limits:
    """Seconds that this task waits for others before it gives up and says who is missing.

    Attributes:
        join: For all tasks to arrive, from this task's start.
        peer: For a task that is alive to reach the same call (`fit`, the next batch, ...).
        silence: Without a heartbeat of a task, after which it counts as dead or stopped.
        leave: At the end of the program, for tasks that are alive and still working.
        grace: From a request to end (SIGTERM) to the end of the process. Kubernetes and Slurm kill after 30.
        progress: For this task's main thread, in training, to go on: in a callback, or reading its input. For a
            parameter server to go on with an answer, such as the next piece of a file.
        compile: The same while it is in the call of a step, which may have to be compiled.
    """

    join: float = 300.0
    peer: float = 600.0
    silence: float = 60.0
    leave: float = 3600.0
    grace: float = 25.0
    progress: float = 900.0
    compile: float = 3600.0

    @classmethod
    def from_environment(cls) -> Limits:
        """Reads `LOCKSTEP_JOIN_TIMEOUT` and its siblings; `ArgumentError` unless each is a positive number."""
        given = {f.name: os.environ.get(_VARIABLES[f.name]) for f in fields(cls)}
        return cls(**{name: _parse_seconds(_VARIABLES[name], text) for name, text in given.items() if text})


def _parse_seconds(variable: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # Infinity is refused too: every wait must end, and name who is missing.
    if not 0 < value < math.inf:
        raise ArgumentError(
            f"{variable} must be a positive number of seconds. Received: {text!r}. Example: {variable}=120"
        )
    return value


class Deadline:
    """A deadline, `seconds` from now, of a wait that logs what it waits for every ten seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = self._reported = time.monotonic()

    @property
    def left(self) -> float:
        """The seconds until the deadline, 0 after it."""
        return max(0.0, self._began + self.seconds - time.monotonic())

    @property
    def can_retry(self) -> bool:
        """Returns whether there is time for a pause and another attempt."""
        return self.left > _RETRY_SECONDS

    def until_report(self, slack: float = 0.0) -> float:
        """Returns the seconds until the next report is due, 0 if it is; later by `slack`, where another may come."""
        return max(0.0, self._reported + _REPORT_SECONDS + slack - time.monotonic())

    def pause(self) -> None:
        """Sleeps before another attempt, no longer than until the deadline."""
        time.sleep(min(_RETRY_SECONDS, self.left))

    def report(self, state: Callable[[], str], slack: float = 0.0) -> str | None:
        """Logs `state()` and the time, if a report is due; returns the text that it has logged."""
        if self.until_report(slack) > 0:
            return None
        text = state()
        self.log(text)
        return text

    def log(self, text: str) -> None:
        """Logs a report, such as another task's; the next one is due in ten seconds."""
        self._reported = time.monotonic()
        waited = self._reported - self._began
        # A warning, not an info: somebody is late, and below this level the default logging shows nothing.
        _log.warning("%s Waited %.0f of %g s (LOCKSTEP_JOIN_TIMEOUT).", text, waited, self.seconds)
