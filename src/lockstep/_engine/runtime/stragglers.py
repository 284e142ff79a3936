"""Names a task that holds the others up, while training goes on.

Tasks that train together make the same steps in the same time, whoever is slow: only what each does meanwhile differs.
A task that spends most of its time on its own input or in its own callbacks, while all others spend little on theirs,
is the one that they wait for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_log = logging.getLogger("lockstep")

_WINDOW_SECONDS = 10.0
_WARN_SECONDS = 60.0
# This part of the time must go to what the task does alone, and so many times what it is with any other.
_SHARE = 0.5
_TIMES = 3.0


class Stragglers:
    """Looks at what tasks tell of themselves, from one beat to the next.

    Args:
        tasks: Their names.
        clock: Seconds that only grow.
    """

    def __init__(self, tasks: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = tasks
        self._clock = clock
        self._begin: tuple[float, dict[int, dict[str, float]]] | None = None
        self._warned = -_WARN_SECONDS

    def look(self, accounts: Mapping[int, Mapping[str, Any]]) -> None:
        """Warns of a task that held the others up since a while, at most once a minute.

        Args:
            accounts: `Progress.account()` of each task.
        """
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

    def forget(self) -> None:
        """Starts anew: nobody depends on anybody."""
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
