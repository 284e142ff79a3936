"""What the launcher says while tasks run: each thing once, as it happens."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.report import manner

_PATIENCE = 1.0
"""Seconds that an evaluator may run alone without a word: most end with the workers."""


class Notes:
    """The launcher's remarks on the console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._failed: set[Child] = set()
        self._alone_since = float("inf")
        self._has_named_evaluator = False

    def failures(self, children: Sequence[Child], *, are_ending: bool) -> None:
        """Name each child that has failed."""
        for child in children:
            if child.exit is not None and child.has_failed and child not in self._failed:
                self._failed.add(child)
                if child.was_preempted and not child.task.is_evaluator:
                    self._preempted(child, len(self._failed) == 1)
                    continue
                consequence = "; ending all tasks" if are_ending and len(self._failed) == 1 else ""
                self._console.note(f"{child.task} failed: {manner(child.exit.code)}{consequence}.")

    def _preempted(self, child: Child, is_first: bool) -> None:
        consequence = "; the others follow" if is_first else ""
        self._console.note(f"{child.task} has ended as asked: {_manner(child)}{consequence}.")

    def evaluator(self, children: Sequence[Child], now: float) -> None:
        """Say what the run waits for when only an evaluator has been left for a while."""
        running = [child.task for child in children if child.exit is None]
        if running and all(task.is_evaluator for task in running):
            self._alone_since = min(self._alone_since, now)
        if running and now - self._alone_since > _PATIENCE and not self._has_named_evaluator:
            self._has_named_evaluator = True
            self._console.note("The workers have finished; waiting for the evaluator. Ctrl-C ends it.")

    def interruption(self, received: signal.Signals) -> None:
        """Say which signal ends the run."""
        self._console.note(f"Received {received.name}: ending all tasks. Ctrl-C kills them at once.")


def _manner(child: Child) -> str:
    assert child.exit is not None
    return manner(child.exit.code)
