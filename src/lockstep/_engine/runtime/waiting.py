"""A wait for other tasks while they arrive, with its limit and its reports."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger("lockstep")
_REPORT_SECONDS = 10.0
# Between two attempts: to look a name up, or to connect.
_RETRY_SECONDS = 0.1


class Waiting:
    """The time until a limit; every ten seconds a line in the log says what is waited for.

    Args:
        seconds: The limit, from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = self._reported = time.monotonic()

    @property
    def left(self) -> float:
        """The seconds until the limit, 0 after it."""
        return max(0.0, self._began + self.seconds - time.monotonic())

    @property
    def can_retry(self) -> bool:
        """Returns whether there is time for a pause and another attempt."""
        return self.left > _RETRY_SECONDS

    def until_report(self, slack: float = 0.0) -> float:
        """Returns the seconds until the next report is due, 0 if it is; later by `slack`, where another may come."""
        return max(0.0, self._reported + _REPORT_SECONDS + slack - time.monotonic())

    def pause(self) -> None:
        """Waits a moment before another attempt."""
        time.sleep(min(_RETRY_SECONDS, self.left))

    def report(self, state: Callable[[], str], slack: float = 0.0) -> str | None:
        """Logs `state()` and the time, if a report is due; returns the text that it has logged.

        It is a warning: somebody is late, and at a lower level nobody would see it.
        """
        if self.until_report(slack) > 0:
            return None
        text = state()
        self.pass_on(text)
        return text

    def pass_on(self, text: str) -> None:
        """Logs a report, such as another task's; the next one is due in ten seconds."""
        self._reported = time.monotonic()
        waited = self._reported - self._began
        _log.warning("%s Waited %.0f of %g s (LOCKSTEP_JOIN_TIMEOUT).", text, waited, self.seconds)
