"""All tasks of a launch together: they start together, and none outlives the others' failure."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep._launch.child import Child
from lockstep._launch.console import Console
from lockstep._launch.error_file import read_error
from lockstep._launch.interrupts import Interrupts
from lockstep._launch.log_files import LogFiles
from lockstep._launch.options import Options
from lockstep._launch.pump import Pump
from lockstep._launch.report import details, title
from lockstep._launch.spawn import spawn
from lockstep._launch.supervisor import Supervisor
from lockstep._launch.task import Task, environment, error_file, tasks_of
from lockstep._launch.verdict import Ended, first_cause
from lockstep._launch.warden import Warden

_LABEL_WIDTH = len("[worker 0] ")
_NARROWEST = 20


class Gang:
    """The tasks, their output, and at the end the verdict on them."""

    def __init__(self, options: Options, directory: Path, warden: Warden, logs: LogFiles) -> None:
        self._options = options
        self._directory = directory
        self._warden = warden
        self._console = Console(os.environ)
        self._pump = Pump(self._console, logs)
        self._children: list[Child] = []

    def start(self, command: Sequence[str], addresses: Sequence[str]) -> None:
        """Start every task, workers first."""
        sys.stdout.flush()
        for task in tasks_of(self._options):
            settings = environment(task, addresses, self._options, self._directory, os.environ)
            self._start(task, command, settings)

    def see_through(self, interrupts: Interrupts) -> int:
        """Carry the tasks' output until all are gone, report a failure, and return the exit code."""
        supervisor = self._supervisor(interrupts)
        supervisor.run()
        ends = [self._ended(child) for child in self._children]
        cause = first_cause(ends)
        if cause is not None:
            self._console.failure(title(cause), details(cause, ends, self._options.log_dir))
        supervisor.drain()
        if supervisor.interrupted is not None:
            return 128 + supervisor.interrupted
        return 0 if cause is None else cause.exit_code

    def close(self) -> None:
        """Kill every task that is left, which is none after a run that was seen through."""
        for child in self._children:
            if not child.is_gone:
                child.kill(time.monotonic())
        self._pump.close()

    def _start(self, task: Task, command: Sequence[str], settings: Mapping[str, str]) -> None:
        process, out, err = spawn(command, settings, self._warden, self._columns(task))
        self._children.append(Child(task, process, self._options.grace))
        self._pump.add(task, out, err)

    def _supervisor(self, interrupts: Interrupts) -> Supervisor:
        return Supervisor(self._children, self._pump, self._console, interrupts, self._warden, self._options.settle)

    def _columns(self, task: Task) -> int | None:
        """Worker 0 animates its progress on the launcher's terminal, beside its label; the others print lines."""
        if task != Task("worker", 0) or not self._console.is_terminal:
            return None
        return max(self._console.columns - _LABEL_WIDTH, _NARROWEST)

    def _ended(self, child: Child) -> Ended:
        assert child.exit is not None
        error = read_error(error_file(child.task, self._directory))
        return Ended(child.task, child.exit, error, tuple(self._pump.tail(child.task)))
