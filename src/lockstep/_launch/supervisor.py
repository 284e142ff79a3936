"""Watches the tasks of a run until all are gone, and decides when to end them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.interrupts import Interrupts
from lockstep._launch.notes import Notes
from lockstep._launch.options import Options
from lockstep._launch.pump import Pump
from lockstep._launch.warden import Warden

_TICK = 0.05
_LEAVING = 1.0
"""Seconds that a reader of the output has left after a signal has asked for the end."""


class Supervisor:
    """Runs until no task is left: all have finished, a worker has failed, or a signal has come.

    After a worker's failure the others have `settle` seconds to fail by themselves, then they are asked to end; where
    all are to be started again, they are killed. After a worker's preemption the others have the time to follow it. An
    evaluator's failure ends nothing, and an evaluator may run on after the workers, as long as it goes on.

    Args:
        children: The tasks; one that is started again takes the place of the one before.
        pump: Carries their output.
        console: Where remarks go.
        interrupts: The launcher's signals.
        warden: Outlives the launcher.
        options: Of the launch.
        watch: Called from time to time while tasks run; returns whether one that has ended is to be started again.
    """

    def __init__(
        self,
        children: list[Child],
        pump: Pump,
        console: Console,
        interrupts: Interrupts,
        warden: Warden,
        options: Options,
        watch: Callable[[float], bool],
    ) -> None:
        self.interrupted: signal.Signals | None = None
        self._children = children
        self._pump = pump
        self._console = console
        self._interrupts = interrupts
        self._warden = warden
        self._options = options
        self._watch = watch
        self._notes = Notes(console)
        self._end_at: float | None = None
        self._follow_until: float | None = None
        self._is_leaving = False
        self._is_start_pending = False

    @property
    def is_ending(self) -> bool:
        """Whether a failure or a signal has been seen that ends all tasks."""
        return self._end_at is not None or self._follow_until is not None

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
        if self._is_start_pending or not all(child.is_gone for child in self._children):
            return True
        return self._pump.is_open and not (self._is_leaving and self._console.stalled)

    def _poll(self, now: float) -> None:
        for child in self._children:
            self._poll_child(child, now)
        self._heed(self._interrupts.take(), now)
        self._heed_failures(now)
        if self._is_due(now):
            self._end_all(now)
        elif self._end_at is None:
            self._notes.evaluator(self._children, now)
        self._is_start_pending = self._watch(now)

    def _poll_child(self, child: Child, now: float) -> None:
        if not child.is_gone:
            child.poll(now)
            if child.is_gone:
                self._warden.discharge(child.group)

    def _is_due(self, now: float) -> bool:
        return self._end_at is not None and now >= self._end_at

    def _heed(self, received: signal.Signals | None, now: float) -> None:
        if received is None:
            return
        self._is_leaving = True
        if not self._is_due(now):
            self._interrupt(received, now)
        elif received == signal.SIGINT:
            self._each(lambda child: child.kill(now))

    def _interrupt(self, received: signal.Signals, now: float) -> None:
        """End all tasks now; a failure that was already ending them stays the reason."""
        if self._end_at is None:
            self.interrupted = received
        self._end_at = now
        self._notes.interruption(received)

    def _heed_failures(self, now: float) -> None:
        failed = [child for child in self._children if child.has_failed and not child.task.is_evaluator]
        crashed = [child for child in failed if not child.was_preempted]
        if crashed and self._end_at is None:
            self._end_at = now + self._settle(crashed)
        elif failed and not self.is_ending:
            self._follow_until = now + self._options.end_grace
        if self._follow_until is not None and self._end_at is None and self._has_followed(now):
            self._end_at = now
        self._notes.failures(self._children, are_ending=bool(failed))

    def _settle(self, crashed: list[Child]) -> float:
        """Seconds until the others are ended: none if a signal ended a task, because that is the first cause."""
        is_clear = any(child.exit is not None and child.exit.code == -signal.SIGKILL for child in crashed)
        return 0.0 if is_clear and self._options.restarts else self._options.settle

    def _has_followed(self, now: float) -> bool:
        """Whether all workers have ended after one was asked to, or had the time for it."""
        assert self._follow_until is not None
        running = any(child.exit is None and not child.task.is_evaluator for child in self._children)
        return not running or now >= self._follow_until

    def _end_all(self, now: float) -> None:
        if self.interrupted is not None or self._is_leaving:
            self._each(lambda child: child.end(now, self._options.end_grace))
        elif self._options.restarts:
            self._each(lambda child: child.kill_once(now))
        else:
            self._each(lambda child: child.end(now))

    def _each(self, action: Callable[[Child], None]) -> None:
        for child in self._children:
            if not child.is_gone:
                action(child)
