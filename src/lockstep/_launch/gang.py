"""All tasks of one generation: they start together, and none outlives the others' failure."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.error_file import ErrorRecord, read_error
from lockstep._launch.evaluator import Standby, Timeouts
from lockstep._launch.interrupts import Interrupts
from lockstep._launch.log_files import LogFiles
from lockstep._launch.options import Options
from lockstep._launch.progress_file import ProgressRecord, read_progress
from lockstep._launch.pump import Pump
from lockstep._launch.recovery import Recovery
from lockstep._launch.spawn import spawn
from lockstep._launch.supervisor import Supervisor
from lockstep._launch.task import Task, environment, error_file, progress_file, tasks_of
from lockstep._launch.verdict import Ended, first_cause
from lockstep._launch.warden import Warden
from lockstep._launch.workspace import Workspace

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
        self._pump = Pump(self._console, equipment.logs)
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
        return Outcome(ends, first_cause(ends), supervisor.interrupted, self._progress())

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
