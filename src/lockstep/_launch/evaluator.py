"""An evaluator that has failed is started again by itself: it never stops the training."""

from __future__ import annotations

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.options import Options

_LONGEST_DELAY = 60.0
_SHORTEST_DELAY = 1.0
"""Seconds in which a failure of the training shows that an evaluator ended because of it."""


class Standby:
    """Decides when an evaluator that has failed is started again, as often as `--max-restarts` allows."""

    def __init__(self, options: Options, console: Console) -> None:
        self._left = options.max_restarts
        self._delay = max(options.restart_delay, _SHORTEST_DELAY)
        self._console = console
        self._failed: tuple[Child, float] | None = None

    def is_due(self, child: Child, now: float) -> bool:
        """Return whether to start the evaluator in place of `child` now."""
        if not child.has_failed or not child.is_gone or not self._left:
            return False
        if self._failed is None or self._failed[0] is not child:
            self._failed = child, now
        if now < self._failed[1] + self._delay:
            return False
        self._left -= 1
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        self._console.note(f"Starting {child.task} again; {self._left} more times at most. The training goes on.")
        return True
