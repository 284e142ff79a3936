"""Restarts of one task alone, in jobs with parameter servers: the others wait for it, or go on without it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.options import Options
from lockstep._launch.root_cause import Ended

_SILENCE, _SILENCE_SECONDS = "LOCKSTEP_SILENCE_TIMEOUT", 60.0


@dataclass(frozen=True)
class Plan:
    """Says what follows a task's failure: it starts again at `due`, or, if that is `None`, the job ends."""

    due: float | None
    reason: str


class SingleRestarts:
    """Decides when a task that has failed is started again by itself.

    Only in a job with parameter servers: elsewhere all tasks end and start together. A task that ends because of
    another one's failure is not: then the job as a whole is to end, or to start again.

    Args:
        options: The options of the launch.
        console: Where each restart is noted.
        decide: Returns, for the end of a task, whether to start it again, after how many seconds, and why.
    """

    def __init__(self, options: Options, console: Console, decide: Callable[[Ended], tuple[bool, float, str]]) -> None:
        self._is_on = options.servers > 0 and options.restarts
        self._console = console
        self._decide = decide
        self._plans: dict[Child, Plan] = {}
        self._stopped: dict[Child, float] = {}
        try:
            self._silence = float(os.environ.get(_SILENCE) or _SILENCE_SECONDS)
        except ValueError:
            self._silence = _SILENCE_SECONDS  # The tasks refuse it, and say so.

    def plan(self, child: Child, ended: Callable[[], Ended], now: float) -> Plan:
        """Returns what is done after the failure of `child`; decided once."""
        if child not in self._plans:
            self._plans[child] = self._new_plan(ended(), now)
        return self._plans[child]

    def will_restart(self, child: Child) -> bool:
        """Returns whether the task is started again; `False` before `plan` has decided."""
        found = self._plans.get(child)
        return found is not None and found.due is not None

    def is_due(self, child: Child, now: float) -> bool:
        """Returns whether to start the task again now."""
        found = self._plans.get(child)
        return found is not None and found.due is not None and child.is_gone and now >= found.due

    def expiry(self, child: Child, now: float) -> str:
        """Returns why a process that is stopped is given up; nothing while it is not."""
        if not self._is_on or not child.is_stopped:
            self._stopped.pop(child, None)
            return ""
        since = self._stopped.setdefault(child, now)
        if now - since <= self._silence:
            return ""
        return (
            f"{child.task} (process {child.group}) has been stopped, by SIGSTOP or a terminal, for {self._silence:g} s "
            f"({_SILENCE})"
        )

    def _new_plan(self, ended: Ended, now: float) -> Plan:
        is_consequence = ended.error is not None and ended.error.secondary
        if not self._is_on or ended.task.is_evaluator or is_consequence:
            return Plan(None, "")
        is_again, delay, reason = self._decide(ended)
        if is_again:
            self._console.note(f"Starting {ended.task} again, by itself: {reason}.")
        return Plan(now + delay if is_again else None, reason)
