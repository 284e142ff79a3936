"""For whom tasks wait: said while they do, long before a limit ends the wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep._engine.runtime.progress import OWN, STEP, WAITS

_log = logging.getLogger("lockstep")
# A person at a terminal wonders after some seconds; the next word comes after twice as long, and so on.
_PATIENCE_SECONDS = 5.0
# Heartbeats are a second apart: what a task was at when the others began to wait began a moment later or earlier.
_SLACK_SECONDS = 2.0
_MOST_NAMES = 4


class Waits:
    """Says, from one heartbeat to the next, which tasks wait and which ones they wait for.

    Args:
        tasks: The names of all tasks.
        note: Takes each sentence for the record of the run.
    """

    def __init__(
        self, tasks: Sequence[str], note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tasks = tasks
        self._note = note
        self._clock = clock
        # Whom the last sentence named, when, and after how many seconds the next one may follow.
        self._named: frozenset[int] = frozenset()
        self._said_at = 0.0
        self._pause = _PATIENCE_SECONDS

    def update(self, accounts: Mapping[int, Mapping[str, Any]]) -> None:
        """Takes each task's `Progress.account()`; logs a sentence if it is time for one."""
        waiting, busy = waiting_and_busy(accounts)
        if not waiting or not busy:
            self._named, self._pause = frozenset(), _PATIENCE_SECONDS
            return
        now = self._clock()
        if self._named == frozenset(busy):
            if now - self._said_at < self._pause:
                return
            self._pause *= 2
        self._named, self._said_at = frozenset(busy), now
        seconds = max(accounts[i]["seconds"] for i in waiting)
        what = "; ".join(
            f"{self._tasks[i]} has been in {accounts[i]['where']} for {accounts[i]['seconds']:.0f} s"
            for i in busy[:_MOST_NAMES]
        )
        more = f"; and {len(busy) - _MOST_NAMES} more tasks" if len(busy) > _MOST_NAMES else ""
        verb = "waits" if len(waiting) == 1 else "wait"
        text = f"{self._names(waiting)} {verb} for {self._names(busy)}, for {seconds:.0f} s by now: {what}{more}."
        _log.warning("%s", text)
        self._note(text)

    def reset(self) -> None:
        """Starts anew: no task depends on another."""
        self._named = frozenset()

    def _names(self, processes: Sequence[int]) -> str:
        names = ", ".join(self._tasks[i] for i in processes[:_MOST_NAMES])
        if len(processes) > _MOST_NAMES:
            names += f" and {len(processes) - _MOST_NAMES} more"
        return names


def waiting_and_busy(accounts: Mapping[int, Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """Returns the tasks that have waited for some seconds, and those that did something of their own meanwhile.

    A wait for the devices alone tells nothing, as all tasks have it while a long step runs; it is a wait for another
    task if that has not begun the step yet.
    """
    placed = {i: account for i, account in accounts.items() if "where" in account}
    waiting = [i for i, a in placed.items() if a["where"] in WAITS and a["seconds"] >= _PATIENCE_SECONDS]
    if not waiting:
        return [], []
    least = max(placed[i]["seconds"] for i in waiting) - _SLACK_SECONDS
    furthest = max(placed[i]["dispatches"] for i in waiting)
    busy = [
        i
        for i, a in placed.items()
        if a["where"] in OWN | {STEP} and a["seconds"] >= min(least, _PATIENCE_SECONDS) and a["dispatches"] <= furthest
    ]
    return waiting, busy
