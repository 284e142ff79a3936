"""Watches the tasks of a run until all are gone, and decides when to end them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.interrupts import Interrupts
from lockstep._launch.notes import Notes
from lockstep._launch.pump import Pump
from lockstep._launch.warden import Warden

_TICK = 0.05
_LEAVING = 1.0
"""Seconds that a reader of the output has left after a signal has asked for the end."""


class Supervisor:
    """Runs until no task is left: all have finished, a worker has failed, or a signal has come.

    After a worker's failure the others have `settle` seconds to fail by themselves, then they are asked to end.
    An evaluator's failure ends nothing, and an evaluator may run on after the workers, as long as it needs.
    """

    def __init__(
        self,
        children: Sequence[Child],
        pump: Pump,
        console: Console,
        interrupts: Interrupts,
        warden: Warden,
        settle: float,
    ) -> None:
        self.interrupted: signal.Signals | None = None
        self._children = children
        self._pump = pump
        self._console = console
        self._interrupts = interrupts
        self._warden = warden
        self._settle = settle
        self._notes = Notes(console)
        self._end_at: float | None = None
        self._is_leaving = False

    def run(self) -> None:
        """Watch until every task is gone and its output carried."""
        while self._is_running():
            self._pump.step(_TICK, {child.task for child in self._children if child.is_gone})
            self._poll(time.monotonic())

    def drain(self) -> None:
        """Wait until what was written has been read; not for long when the user wants to leave."""
        give_up_at = time.monotonic() + (_LEAVING if self._is_leaving else float("inf"))
        while self._console.stalled and not self._interrupts.any and time.monotonic() < give_up_at:
            self._console.flush(_TICK)

    def _is_running(self) -> bool:
        if not all(child.is_gone for child in self._children):
            return True
        return self._pump.is_open and not (self._is_leaving and self._console.stalled)

    def _poll(self, now: float) -> None:
        for child in self._children:
            self._poll_child(child, now)
        self._heed(self._interrupts.take(), now)
        self._heed_failures(now)
        if self._is_ending(now):
            self._each(Child.end, now)
        elif self._end_at is None:
            self._notes.evaluator(self._children, now)

    def _poll_child(self, child: Child, now: float) -> None:
        if not child.is_gone:
            child.poll(now)
            if child.is_gone:
                self._warden.discharge(child.group)

    def _is_ending(self, now: float) -> bool:
        return self._end_at is not None and now >= self._end_at

    def _heed(self, received: signal.Signals | None, now: float) -> None:
        if received is None:
            return
        self._is_leaving = True
        if not self._is_ending(now):
            self._interrupt(received, now)
        elif received == signal.SIGINT:
            self._each(Child.kill, now)

    def _interrupt(self, received: signal.Signals, now: float) -> None:
        """End all tasks now; a failure that was already ending them stays the reason."""
        if self._end_at is None:
            self.interrupted = received
        self._end_at = now
        self._notes.interruption(received)

    def _heed_failures(self, now: float) -> None:
        failed = any(child.has_failed and not child.task.is_evaluator for child in self._children)
        if failed and self._end_at is None:
            self._end_at = now + self._settle
        self._notes.failures(self._children, are_ending=failed)

    def _each(self, action: Callable[[Child, float], None], now: float) -> None:
        for child in self._children:
            if not child.is_gone:
                action(child, now)
