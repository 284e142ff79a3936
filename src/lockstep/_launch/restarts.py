"""Restarts: one attempt after another, as long as the gang decides to start again."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

from lockstep._launch.evaluator import Standby
from lockstep._launch.failures import failure_of
from lockstep._launch.gang import Gang, Placement, Verdict
from lockstep._launch.recovery import Recovery
from lockstep._launch.root_cause import Outcome, details, preemption, title
from lockstep._launch.supervisor import Attempt, Launch
from lockstep._launch.task import Reservation
from lockstep._launch.task_files import Workspace
from lockstep.errors import AddressError, DataNotFoundError
from lockstep.report.internal import LAUNCHER, settings, write_report

# Seconds between two looks for a signal, or for free ports.
_TICK = 0.05
# Seconds to wait for ports of an earlier attempt, until others are taken.
_PORTS_SECONDS = 2.0


class Attempts:
    """Runs the tasks again and again, until they have finished or should not be started again."""

    def __init__(self, launch: Launch, gang: Gang, workspace: Workspace) -> None:
        self._launch = launch
        self._gang = gang
        self._options = launch.options
        self._workspace = workspace
        self._console = launch.console
        self._standby = Standby(self._options, self._console)
        self._recovery = Recovery(self._console, self._options.report)
        self._log_dir = self._options.log_dir

    def run(self, ports: Reservation, placement: Placement) -> int:
        """Runs attempts, the first with these ports and in this place; returns the exit code."""
        number = 1
        self._recovery.launched(placement.run_id, self._launch.repeat or self._launch.command, settings(os.environ))
        if self._log_dir is not None:
            self._record_in(self._log_dir)
        while True:
            outcome = self._run_attempt(number, ports, placement)
            verdict = self._gang.decide(outcome)
            self._report(outcome, verdict)
            received = self._wait(verdict.decision.delay) if verdict.decision.again else None
            if not verdict.decision.again or received is not None:
                return self._ended(verdict.code if received is None else 128 + received)
            number += 1
            ports = self._new_ports()
            found = self._gang.place(ports.addresses)
            if found is None:
                ports.free()
                return self._ended(128 + (self._launch.interrupts.take() or 0))
            placement = found

    def _ended(self, code: int) -> int:
        self._recovery.ended(code)
        self._leave_report()
        return code

    def _run_attempt(self, number: int, ports: Reservation, placement: Placement) -> Outcome:
        attempt = Attempt(self._launch, self._gang, number, self._workspace, placement, self._standby, self._recovery)
        with closing(attempt), ports:
            ports.free()
            attempt.start()
            outcome = attempt.run()
        # Without --log-dir the program may have one, which its tasks tell.
        self._log_dir = self._log_dir or next((Path(r.log_dir) for r in outcome.progress if r.log_dir), None)
        if self._log_dir is not None:
            self._record_in(self._log_dir)
        if (cause := outcome.cause) is not None:
            failure = failure_of(outcome.progress, cause)
            record = {
                "generation": number,
                "task": str(cause.task),
                "cause": failure.what,
                "kind": "preemption" if failure.is_preemption else "crash",
                "code": cause.exit.code,
                "last_step": failure.step,
                "dispatches": failure.dispatches,
            }
            self._recovery.failed(cause.time, record)
        return outcome

    def _record_in(self, log_dir: Path) -> None:
        # Machines may share the directory: each launcher has a record of its own, of which node 0's is the job's.
        rank = self._options.node_rank
        self._recovery.record_in(log_dir, LAUNCHER if not rank else f"{LAUNCHER} {rank}")

    def _leave_report(self) -> None:
        """Writes the report of the run into its log directory, if it has one and a task has trained."""
        if self._log_dir is None:
            return
        try:
            self._console.note(f"Report: {write_report(self._log_dir)}")
        except DataNotFoundError:
            return  # A program that does not train leaves no record.
        except OSError as error:
            # The exit code is that of the tasks, whatever becomes of the page.
            self._console.note(f"The report cannot be written: {error.strerror}. Try: lockstep report {self._log_dir}")

    def _report(self, outcome: Outcome, verdict: Verdict) -> None:
        """Shows the failure, if there is one, and last what follows from it."""
        cause, decision = outcome.cause, verdict.decision
        if verdict.elsewhere:
            self._console.note(verdict.elsewhere)
        elif cause is not None and cause.was_preempted:
            self._console.note(preemption(cause, is_last=not decision.again))
        elif cause is not None:
            self._console.failure(title(cause), details(cause, outcome.ends, self._options.log_dir))
        if decision.again:
            pause = f" in {decision.delay:g} s" if decision.delay else ""
            self._console.note(f"Starting all tasks again{pause}: {decision.reason}.")
        elif decision.reason:
            self._console.note(f"Not starting again: {decision.reason}.")

    def _wait(self, seconds: float) -> int | None:
        """Waits; returns the signal that has come meanwhile, if any."""
        interrupts = self._launch.interrupts
        until = time.monotonic() + seconds
        while time.monotonic() < until and not interrupts.any:
            time.sleep(_TICK)
        return interrupts.take()

    def _new_ports(self) -> Reservation:
        """Returns the ports that were asked for, if they are free again in time, or any others."""
        count, host = len(self._gang.tasks), self._gang.host
        until = time.monotonic() + _PORTS_SECONDS
        while self._options.port_base is not None and time.monotonic() < until:
            try:
                return Reservation(count, self._options.port_base, host)
            except AddressError:
                time.sleep(_TICK)
        return Reservation(count, None, host)
