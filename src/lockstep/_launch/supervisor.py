"""Watches the tasks of a run until all are gone, and decides when to end them."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from lockstep._launch.child import Child, spawn
from lockstep._launch.console import Console
from lockstep._launch.evaluator import Standby, Timeouts
from lockstep._launch.options import Options
from lockstep._launch.output import LogFiles, OutputMultiplexer
from lockstep._launch.recovery import Recovery
from lockstep._launch.root_cause import Ended, manner, root_cause
from lockstep._launch.task import Task, environment, error_file, progress_file, tasks_of
from lockstep._launch.task_files import ErrorRecord, ProgressRecord, Workspace, read_error, read_progress
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
        pump: OutputMultiplexer,
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


# MERGED gang
# """All tasks of one generation: they start together, and none outlives the others' failure."""


_LABEL_WIDTH = len("[worker 0] ")
_NARROWEST = 20


@dataclass(frozen=True)
class Equipment:
    """What all generations of a launch have in common."""

    options: Options
    command: Sequence[str]
    console: Console
    logs: LogFiles
    warden: Warden
    interrupts: Interrupts
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    run_id: str = field(default_factory=lambda: secrets.token_hex(16))


@dataclass(frozen=True)
class Outcome:
    """How a generation has ended.

    Attributes:
        ends: Each task's end.
        cause: The first failure, if any.
        signal: The signal that has asked the launcher to end, if any.
        progress: How far each task that trains has come, as far as they have said.
        evaluator_gave_up: The exit code of an evaluator that failed for good, or 0.
    """

    ends: Sequence[Ended]
    cause: Ended | None
    signal: int | None
    progress: Sequence[ProgressRecord]

    @property
    def code(self) -> int:
        """What the launcher returns."""
        if self.signal is not None:
            return 128 + self.signal
        return 0 if self.cause is None else self.cause.exit_code


class Gang:
    """The tasks of a generation and their output.

    Args:
        equipment: What they share with other generations.
        number: Of the generation, from 1 on.
        workspace: For what the tasks write for the launcher.
        addresses: One for each task.
        standby: Starts an evaluator again.
        recovery: Times the way back to training.
    """

    def __init__(
        self,
        equipment: Equipment,
        number: int,
        workspace: Workspace,
        addresses: Sequence[str],
        standby: Standby,
        recovery: Recovery,
    ) -> None:
        self._equipment = equipment
        self._options = equipment.options
        self._number = number
        self._workspace = workspace
        self._directory = workspace.generation(number)
        self._addresses = addresses
        self._standby = standby
        self._recovery = recovery
        self._console = equipment.console
        self._pump = OutputMultiplexer(self._console, equipment.logs)
        self._children: list[Child] = []
        self._timeouts = Timeouts()

    def start(self) -> None:
        """Start every task, workers first."""
        sys.stdout.flush()
        self._recovery.started()
        for task in tasks_of(self._options):
            self._children.append(self._start(task))

    def see_through(self) -> Outcome:
        """Carry the tasks' output until all are gone, and return how they ended."""
        shared = self._equipment
        supervisor = Supervisor(
            self._children, self._pump, self._console, shared.interrupts, shared.warden, self._options, self._watch
        )
        self._supervisor = supervisor
        supervisor.run()
        ends = [self._ended(child) for child in self._children]
        supervisor.drain()
        return Outcome(ends, root_cause(ends), supervisor.interrupted, self._progress())

    def close(self) -> None:
        """Kill every task that is left, which is none after a run that was seen through."""
        for child in self._children:
            if not child.is_gone:
                child.kill(time.monotonic())
        self._pump.close()

    def _start(self, task: Task) -> Child:
        settings = environment(
            task,
            self._addresses,
            self._options,
            self._directory,
            os.environ,
            generation=self._number,
            secret=self._equipment.secret,
            run_id=self._equipment.run_id,
            restarts=self._standby.settings if task.is_evaluator else {},
        )
        process, out, err = spawn(self._equipment.command, settings, self._equipment.warden, self._columns(task))
        self._pump.add(task, out, err)
        return Child(task, process, self._options.failure_grace)

    def _watch(self, now: float) -> bool:
        """Look for what has to be done while tasks run; return whether one is to be started again."""
        self._workspace.look(now)
        self._recovery.look(self._progress, now)
        if self._supervisor.is_ending:
            return False
        places = [i for i, child in enumerate(self._children) if child.task.is_evaluator]
        return any([self._watch_evaluator(i, now) for i in places])

    def _watch_evaluator(self, place: int, now: float) -> bool:
        child = self._children[place]
        is_training = any(child.exit is None for child in self._children if not child.task.is_evaluator)
        if self._standby.is_due(child, now, is_training=is_training):
            for path in (error_file(child.task, self._directory), progress_file(child.task, self._directory)):
                path.unlink(missing_ok=True)
            self._children[place] = self._start(child.task)
        elif child.exit is None and not child.given_up:
            self._give_up_if_silent(child, now, is_training)
        return self._standby.will_restart(child)

    def _give_up_if_silent(self, child: Child, now: float, is_training: bool) -> None:
        progress = None if is_training else read_progress(progress_file(child.task, self._directory))
        if reason := self._timeouts.expiry(child, progress, now, is_training=is_training):
            self._console.note(f"{reason}: it is killed.")
            child.give_up(now, reason)

    def _progress(self) -> list[ProgressRecord]:
        training = [task for task in tasks_of(self._options) if not task.is_evaluator]
        found = [read_progress(progress_file(task, self._directory)) for task in training]
        return [record for record in found if record is not None]

    def _columns(self, task: Task) -> int | None:
        """Worker 0 animates its progress on the launcher's terminal, beside its label; the others print lines."""
        if task != Task("worker", 0) or not self._console.is_terminal:
            return None
        return max(self._console.columns - _LABEL_WIDTH, _NARROWEST)

    def _ended(self, child: Child) -> Ended:
        assert child.exit is not None
        error = read_error(error_file(child.task, self._directory))
        if child.given_up:
            error = ErrorRecord(child.exit.at, "TimeoutError", child.given_up, f"TimeoutError: {child.given_up}", False)
        return Ended(child.task, child.exit, error, tuple(self._pump.tail(child.task)))


# MERGED notes
# """What the launcher says while tasks run: each thing once, as it happens."""


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


# MERGED interrupts
# """The signals that ask the launcher to end."""


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Collects Ctrl-C, SIGTERM and SIGHUP inside its `with` block instead of being ended by them.

    A signal that was ignored before, as under nohup, stays ignored. Outside the main thread nothing is collected.
    """

    def __init__(self) -> None:
        self._received: deque[signal.Signals] = deque()
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def any(self) -> bool:
        """Whether a signal waits to be taken."""
        return bool(self._received)

    def take(self) -> signal.Signals | None:
        """Return the earliest signal that was not taken yet, if any."""
        return self._received.popleft() if self._received else None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._receive) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))
