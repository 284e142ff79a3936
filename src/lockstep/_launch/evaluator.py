"""Restarts of an evaluator by itself, which never stops the training, and the time limits that it has."""

from __future__ import annotations

import os

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.options import Options
from lockstep._launch.task_files import ProgressRecord

# Seconds; as for restarts of all tasks.
_LONGEST_DELAY = 60.0
# Seconds in which a failure of the training shows that an evaluator ended because of it.
_SHORTEST_DELAY = 1.0
_SILENCE, _LEAVE = ("LOCKSTEP_SILENCE_TIMEOUT", 60.0), ("LOCKSTEP_LEAVE_TIMEOUT", 3600.0)


class Standby:
    """Decides when an evaluator that has failed is started again: as often as `--max-restarts` allows.

    Those that were asked to end (SIGTERM) are counted apart, against `--max-preemptions`.
    """

    def __init__(self, options: Options, console: Console) -> None:
        self._left = {False: options.max_restarts, True: options.preemptions}
        self._delay = max(options.restart_delay, _SHORTEST_DELAY)
        self._console = console
        self._failed: tuple[Child, float] | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The environment that tells an evaluator how often it is started again, after a failure and after SIGTERM."""
        return {
            "LOCKSTEP_RESTARTS_LEFT": str(self._left[False]),
            "LOCKSTEP_PREEMPTIONS_LEFT": str(self._left[True]),
        }

    def will_restart(self, child: Child) -> bool:
        """Returns whether the evaluator is started in place of `child`, sooner or later."""
        return child.has_failed and self._left[child.was_preempted] > 0

    def is_due(self, child: Child, now: float, *, is_training: bool) -> bool:
        """Returns whether to start the evaluator in place of `child` now."""
        if not child.is_gone or not self.will_restart(child):
            return False
        # A moment later, so that a failure of the training that it ended because of is seen before.
        if self._failed is None or self._failed[0] is not child:
            self._failed = child, now
        if now < self._failed[1] + (_SHORTEST_DELAY if child.was_preempted else self._delay):
            return False
        self._left[child.was_preempted] -= 1
        if not child.was_preempted:
            self._delay = min(2 * self._delay, _LONGEST_DELAY)
        left = self._left[child.was_preempted]
        # Noted at each restart, because nothing else shows that evaluations are missing.
        doing = "The training goes on." if is_training else "The workers have finished."
        self._console.note(f"Starting {child.task} again; {left} more times at most. {doing}")
        return True


class Timeouts:
    """Decides when an evaluator that does not go on is given up.

    A process that is stopped has `LOCKSTEP_SILENCE_TIMEOUT` seconds until it must go on, as a worker has. One that runs
    after the workers have finished must report a step within `LOCKSTEP_LEAVE_TIMEOUT` seconds.
    """

    def __init__(self) -> None:
        self._silence, self._leave = _limit(*_SILENCE), _limit(*_LEAVE)
        self._child: Child | None = None
        self._stopped_at: float | None = None
        self._waiting_since: float | None = None
        self._dispatches = -1

    def expiry(self, child: Child, progress: ProgressRecord | None, now: float, *, is_training: bool) -> str:
        """Returns which limit `child` has exceeded, and by what; nothing while it has not."""
        if child is not self._child:
            self._child, self._stopped_at, self._waiting_since = child, None, None
        if not child.is_stopped:
            self._stopped_at = None
        elif self._stopped_at is None:
            self._stopped_at = now
        if self._stopped_at is not None and now - self._stopped_at > self._silence:
            return (
                f"{child.task} (process {child.group}) has been stopped, by SIGSTOP or a terminal, for "
                f"{self._silence:g} s ({_SILENCE[0]})"
            )
        # While the workers train an evaluator may wait for a checkpoint as long as it likes.
        if is_training or self._has_gone_on(progress):
            self._waiting_since = None
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since > self._leave:
            return (
                f"The workers have finished, and {child.task} (process {child.group}) has made no step for "
                f"{self._leave:g} s ({_LEAVE[0]})"
            )
        return ""

    def _has_gone_on(self, progress: ProgressRecord | None) -> bool:
        before, self._dispatches = self._dispatches, -1 if progress is None else progress.dispatches
        return self._dispatches != before


def _limit(variable: str, default: float) -> float:
    """Returns the limit that the tasks have."""
    try:
        seconds = float(os.environ.get(variable) or default)
    except ValueError:
        return default  # The tasks refuse it, and say so.
    return seconds if seconds > 0 else default
