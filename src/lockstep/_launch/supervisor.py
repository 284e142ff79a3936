"""Supervises the tasks of one attempt: they start together, and none outlives the others' failure."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Self

from lockstep._launch.child import Child, spawn
from lockstep._launch.console import Console
from lockstep._launch.evaluator import Standby, Timeouts
from lockstep._launch.failures import failure_of
from lockstep._launch.gang import Gang, Placement
from lockstep._launch.options import Options
from lockstep._launch.output import LogFiles, OutputMultiplexer
from lockstep._launch.recovery import Recovery
from lockstep._launch.root_cause import Ended, Outcome, manner, root_cause
from lockstep._launch.single_restarts import SingleRestarts
from lockstep._launch.task import Task, environment, error_file, progress_file
from lockstep._launch.task_files import ErrorRecord, ProgressRecord, Workspace, read_error, read_progress
from lockstep._launch.warden import Warden

# Seconds between two looks at the tasks: a failure is noticed within that.
_TICK = 0.05
# Seconds that a reader of the output has left after a signal has asked for the end.
_LEAVING = 1.0
# Seconds that an evaluator may run alone without a note: most end with the workers.
_PATIENCE = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LABEL_WIDTH = len("[worker 0] ")
# Columns of the first task's terminal, however narrow the launcher's is: Keras' progress bar needs some.
_NARROWEST = 20


class Interrupts:
    """Collects Ctrl-C, SIGTERM and SIGHUP inside its `with` block instead of being ended by them.

    A signal that was ignored before, as under nohup, stays ignored. Outside the main thread nothing is collected.
    """

    def __init__(self) -> None:
        self._received: deque[signal.Signals] = deque()
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def any(self) -> bool:
        """Returns whether a signal waits to be taken."""
        return bool(self._received)

    def take(self) -> signal.Signals | None:
        """Returns the earliest signal that was not taken yet, if any."""
        return self._received.popleft() if self._received else None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._receive) for number in handled}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))


@dataclass(frozen=True)
class Launch:
    """The parts of a launch that all attempts share."""

    options: Options
    command: Sequence[str]
    console: Console
    logs: LogFiles
    warden: Warden
    interrupts: Interrupts
    # The command of the launch itself, as its report repeats it.
    repeat: Sequence[str] = ()


class Attempt:
    """The tasks of one attempt and their output."""

    def __init__(
        self,
        launch: Launch,
        gang: Gang,
        number: int,
        workspace: Workspace,
        placement: Placement,
        standby: Standby,
        recovery: Recovery,
    ) -> None:
        self._launch = launch
        self._options = launch.options
        self._number = number
        self._workspace = workspace
        self._directory = workspace.attempt(number)
        self._gang = gang
        self._placement = placement
        self._standby = standby
        self._recovery = recovery
        self._console = launch.console
        self._output = OutputMultiplexer(self._console, launch.logs)
        self._children: list[Child] = []
        self._timeouts = Timeouts()
        # Those that were started again by themselves.
        self._restarted: set[Child] = set()
        self._single = SingleRestarts(self._options, self._console, self._decide_single)

    def start(self) -> None:
        """Starts every task, workers first."""
        sys.stdout.flush()  # A fork would write the buffered text again.
        self._recovery.started()
        for task in self._placement.tasks:
            self._children.append(self._start(task))

    def run(self) -> Outcome:
        """Shows the tasks' output until all are gone, and returns how they ended."""
        self._supervisor = Supervisor(
            self._children, self._output, self._launch, self._gang, self._watch, self._is_started_again
        )
        self._supervisor.run()
        ends = [self._ended(child) for child in self._children]
        # After the reports of the tasks were read: it may take as long as the reader of the output.
        self._supervisor.drain()
        return Outcome(ends, root_cause(ends), self._supervisor.interrupted, self._progress())

    def close(self) -> None:
        """Kills every task that is left, which is none after `run` has returned."""
        for child in self._children:
            if not child.is_gone:
                child.kill(time.monotonic())
        self._output.close()

    def _start(self, task: Task) -> Child:
        settings = environment(
            task,
            self._placement.cluster,
            self._options,
            self._directory,
            os.environ,
            attempt=self._number,
            secret=self._placement.secret,
            run_id=self._placement.run_id,
            restarts=self._standby.settings if task.is_evaluator else self._single_settings(),
        )
        # The task that writes animates its progress on the launcher's terminal, beside its label. Others print lines.
        columns, is_first = None, task == self._placement.tasks[0]
        if is_first and self._console.is_terminal:
            columns = max(self._console.columns - _LABEL_WIDTH, _NARROWEST)
        process, out, err = spawn(self._launch.command, settings, self._launch.warden, columns)
        self._output.add(task, out, err, is_first=is_first)
        return Child(task, process, self._options.failure_grace)

    def _watch(self, now: float) -> bool:
        """Does what is due while tasks run; returns whether an evaluator is to be started again."""
        self._workspace.restore(now)
        self._recovery.poll(self._progress, now)
        if self._supervisor.is_ending:
            return False
        is_pending = any([self._watch_single(i, now) for i in range(len(self._children))])
        evaluators = [i for i, child in enumerate(self._children) if child.task.is_evaluator]
        return any([self._watch_evaluator(i, now) for i in evaluators]) or is_pending

    def _watch_single(self, index: int, now: float) -> bool:
        """Starts a task again that is to be started by itself; returns whether that is still to come."""
        child = self._children[index]
        if self._single.is_due(child, now):
            for path in (error_file(child.task, self._directory), progress_file(child.task, self._directory)):
                path.unlink(missing_ok=True)
            self._recovery.started()
            self._children[index] = self._start(child.task)
            self._restarted.add(self._children[index])
        elif child.exit is None and not child.given_up and (reason := self._single.expiry(child, now)):
            self._console.note(f"{reason}: it is killed.")
            child.give_up(now, reason)
        elif self._comes_too_late(child):
            self._console.note(f"{child.task} has not joined the job before its end: it is ended.")
            child.end(now)
        return self._single.will_restart(self._children[index])

    def _comes_too_late(self, child: Child) -> bool:
        """Returns whether a task that was started again by itself still starts after the chief has ended well."""
        # It would wait for the chief for LOCKSTEP_JOIN_TIMEOUT.
        chief = self._children[0]
        if child not in self._restarted or child.exit is not None or child.is_asked_to_end:
            return False
        if chief.exit is None or chief.exit.code != 0:
            return False
        record = read_progress(progress_file(child.task, self._directory))
        return record is None or record.time("joined") is None

    def _is_started_again(self, child: Child, now: float) -> bool:
        """Returns whether a task that has failed is started again by itself."""
        return self._single.plan(child, lambda: self._ended(child), now).due is not None

    def _decide_single(self, ended: Ended) -> tuple[bool, float, str]:
        failure = failure_of(self._progress(), ended)
        decision = self._gang.budget.decide(failure)
        if decision.again:
            record = {"generation": self._number, "task": str(ended.task), "cause": failure.what, "alone": True}
            self._recovery.failed(ended.time, record)
        return decision.again, decision.delay, decision.reason

    def _single_settings(self) -> dict[str, str]:
        """Returns the environment that tells a task whether it is started again by itself."""
        is_on = self._options.servers > 0 and self._options.max_restarts > 0
        return {"LOCKSTEP_RESTARTS_LEFT": str(self._options.max_restarts)} if is_on else {}

    def _watch_evaluator(self, index: int, now: float) -> bool:
        child = self._children[index]
        is_training = any(child.exit is None for child in self._children if not child.task.is_evaluator)
        if self._standby.is_due(child, now, is_training=is_training):
            for path in (error_file(child.task, self._directory), progress_file(child.task, self._directory)):
                path.unlink(missing_ok=True)
            self._children[index] = self._start(child.task)
        elif child.exit is None and not child.given_up:
            progress = None if is_training else read_progress(progress_file(child.task, self._directory))
            if reason := self._timeouts.expiry(child, progress, now, is_training=is_training):
                self._console.note(f"{reason}: it is killed.")
                child.give_up(now, reason)
        return self._standby.will_restart(child)

    def _progress(self) -> list[ProgressRecord]:
        training = [task for task in self._placement.tasks if not task.is_evaluator]
        found = [read_progress(progress_file(task, self._directory)) for task in training]
        return [record for record in found if record is not None]

    def _ended(self, child: Child) -> Ended:
        assert child.exit is not None
        error = read_error(error_file(child.task, self._directory))
        if child.given_up:
            error = ErrorRecord(child.exit.at, "TimeoutError", child.given_up, f"TimeoutError: {child.given_up}", False)
        return Ended(child.task, child.exit, error, tuple(self._output.tail(child.task)))


class Supervisor:
    """Runs until no task is left: all have finished, a worker has failed, or a signal has come.

    After a worker's failure the others have `settle` seconds to fail by themselves, then they are asked to end; where
    all are to be started again, they are killed. After a worker's preemption the others have the time to follow it. An
    evaluator's failure ends nothing, and an evaluator may run on after the workers, as long as it goes on.
    """

    def __init__(
        self,
        children: list[Child],
        output: OutputMultiplexer,
        launch: Launch,
        gang: Gang,
        watch: Callable[[float], bool],
        is_started_again: Callable[[Child, float], bool],
    ) -> None:
        self.interrupted: signal.Signals | None = None
        self._children = children
        self._output = output
        self._launch = launch
        self._gang = gang
        self._console = launch.console
        self._options = launch.options
        self._watch = watch
        self._is_started_again = is_started_again
        self._end_at: float | None = None
        self._follow_until: float | None = None
        self._is_leaving = False
        self._is_start_pending = False
        # Each is noted on the console once.
        self._noted: set[Child] = set()
        self._alone_since = float("inf")
        self._has_noted_evaluator = False

    @property
    def is_ending(self) -> bool:
        """Returns whether a failure or a signal has been seen that ends all tasks."""
        return self._end_at is not None or self._follow_until is not None

    def run(self) -> None:
        """Watches until every task is gone and its output shown."""
        while self._is_running():
            self._output.step(_TICK, {child.task for child in self._children if child.is_gone})
            self._poll(time.monotonic())

    def drain(self) -> None:
        """Waits until the output has been read; not for long when the user wants to leave."""
        give_up_at = time.monotonic() + (_LEAVING if self._is_leaving else float("inf"))
        while self._console.stalled and not self._launch.interrupts.any and time.monotonic() < give_up_at:
            self._console.flush(_TICK)

    def _is_running(self) -> bool:
        if self._is_start_pending or not all(child.is_gone for child in self._children):
            return True
        return self._output.is_open and not (self._is_leaving and self._console.stalled)

    def _poll(self, now: float) -> None:
        for child in self._children:
            if not child.is_gone:
                child.poll(now)
                if child.is_gone:
                    self._launch.warden.discharge(child.group)
        self._handle_signal(self._launch.interrupts.take(), now)
        self._handle_failures(now)
        self._handle_others(now)
        if self._is_due(now):
            self._end_all(now)
        elif self._end_at is None:
            self._note_evaluator(now)
        self._is_start_pending = self._watch(now)

    def _is_due(self, now: float) -> bool:
        return self._end_at is not None and now >= self._end_at

    def _handle_signal(self, received: signal.Signals | None, now: float) -> None:
        if received is None:
            return
        # From now on a reader that does not read is not waited for.
        self._is_leaving = True
        if not self._is_due(now):
            # A failure that was already ending the tasks stays the reason.
            if self._end_at is None:
                self.interrupted = received
            self._end_at = now
            self._console.note(f"Received {received.name}: ending all tasks. Ctrl-C kills them at once.")
        elif received == signal.SIGINT:  # A second Ctrl-C, while the tasks end.
            self._each(lambda child: child.kill(now))

    def _handle_failures(self, now: float) -> None:
        failed = [child for child in self._children if child.has_failed and not child.task.is_evaluator]
        if not self.is_ending:
            self._note_failures(are_ending=False, of=[c for c in failed if self._is_started_again(c, now)])
            failed = [child for child in failed if not self._is_started_again(child, now)]
        crashed = [child for child in failed if not child.was_preempted]
        if crashed and self._end_at is None:
            # At once if SIGKILL ended a task and all start again: no other failure can be the root cause then.
            is_clear = any(child.exit is not None and child.exit.code == -signal.SIGKILL for child in crashed)
            self._end_at = now + (0.0 if is_clear and self._options.restarts else self._options.settle)
            self._gang.fail()
        elif failed and not self.is_ending:
            self._follow_until = now + self._options.end_grace
        if self._follow_until is not None and self._end_at is None:
            running = any(child.exit is None and not child.task.is_evaluator for child in self._children)
            if not running or now >= self._follow_until:
                self._end_at = now
        self._note_failures(are_ending=bool(failed))

    def _handle_others(self, now: float) -> None:
        """Ends the tasks if those on another machine have failed, after the time to fail by themselves."""
        if self._end_at is None and (reason := self._gang.failure()):
            self._end_at = now + self._options.settle
            self._console.note(f"{reason}; ending all tasks.")

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

    def _note_failures(self, *, are_ending: bool, of: Sequence[Child] | None = None) -> None:
        for child in self._children if of is None else of:
            if child.exit is None or not child.has_failed or child in self._noted:
                continue
            self._noted.add(child)
            is_first, how = len(self._noted) == 1 and of is None, manner(child.exit.code)
            if child.was_preempted and not child.task.is_evaluator:
                consequence = "; the others follow" if is_first else ""
                self._console.note(f"{child.task} has ended as asked: {how}{consequence}.")
            else:
                consequence = "; ending all tasks" if are_ending and is_first else ""
                self._console.note(f"{child.task} failed: {how}{consequence}.")

    def _note_evaluator(self, now: float) -> None:
        """Notes what the run waits for when only an evaluator has been left for a while."""
        running = [child.task for child in self._children if child.exit is None]
        if running and all(task.is_evaluator for task in running):
            self._alone_since = min(self._alone_since, now)
        if running and now - self._alone_since > _PATIENCE and not self._has_noted_evaluator:
            self._has_noted_evaluator = True
            self._console.note("The workers have finished; waiting for the evaluator. Ctrl-C ends it.")
