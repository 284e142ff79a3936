"""One generation of tasks after another, until they have finished or should not be started again."""

from __future__ import annotations

import time
from contextlib import closing

from lockstep._launch.evaluator import Standby
from lockstep._launch.gang import Equipment, Gang, Outcome
from lockstep._launch.ports import Reservation
from lockstep._launch.recovery import Recovery
from lockstep._launch.report import details, preemption, title
from lockstep._launch.restarts import Budget, Decision, Failure
from lockstep._launch.task import tasks_of
from lockstep._launch.verdict import Ended
from lockstep._launch.workspace import Workspace
from lockstep.errors import AddressError

_TICK = 0.05
_PORTS_SECONDS = 2.0
"""Seconds to wait for ports of an earlier generation, until others are taken."""


class Generations:
    """Runs the tasks again and again.

    Args:
        equipment: What all generations share.
        workspace: For what tasks write for the launcher, in a directory for each generation.
    """

    def __init__(self, equipment: Equipment, workspace: Workspace) -> None:
        self._equipment = equipment
        self._options = equipment.options
        self._workspace = workspace
        self._console = equipment.console
        self._budget = Budget(self._options)
        self._standby = Standby(self._options, self._console)
        self._recovery = Recovery(self._console, self._options.report)

    def run(self, ports: Reservation) -> int:
        """Start tasks until they need not, or must not, be started again; return the exit code.

        Args:
            ports: For the first generation.
        """
        number = 1
        while True:
            outcome = self._see_through(number, ports)
            decision = self._decide(outcome)
            self._report(outcome, decision)
            received = self._wait(decision.delay) if decision.again else None
            if not decision.again or received is not None:
                code = outcome.code if received is None else 128 + received
                self._recovery.ended(code)
                return code
            number += 1
            ports = self._new_ports()

    def _see_through(self, number: int, ports: Reservation) -> Outcome:
        gang = Gang(self._equipment, number, self._workspace, ports.addresses, self._standby, self._recovery)
        with closing(gang), ports:
            ports.free()
            gang.start()
            outcome = gang.see_through()
        if outcome.cause is not None:
            self._recovery.failed(outcome.cause.time, _facts(number, outcome.cause, _failure(outcome)))
        return outcome

    def _decide(self, outcome: Outcome) -> Decision:
        cause = outcome.cause
        if outcome.signal is not None or cause is None or cause.task.is_evaluator:
            return Decision(False, "")
        return self._budget.decide(_failure(outcome))

    def _report(self, outcome: Outcome, decision: Decision) -> None:
        """Say what went wrong, if anything, and last what follows from it."""
        cause = outcome.cause
        if cause is not None and cause.was_preempted:
            self._console.note(preemption(cause, is_last=not decision.again))
        elif cause is not None:
            self._console.failure(title(cause), details(cause, outcome.ends, self._options.log_dir))
        if decision.again:
            pause = f" in {decision.delay:g} s" if decision.delay else ""
            self._console.note(f"Starting all tasks again{pause}: {decision.reason}.")
        elif decision.reason:
            self._console.note(f"Not starting again: {decision.reason}.")

    def _wait(self, seconds: float) -> int | None:
        """Wait; return the signal that has come meanwhile, if any."""
        interrupts = self._equipment.interrupts
        until = time.monotonic() + seconds
        while time.monotonic() < until and not interrupts.any:
            time.sleep(_TICK)
        return interrupts.take()

    def _new_ports(self) -> Reservation:
        """The ports that were asked for, if they are free again in time, or any others."""
        count = len(tasks_of(self._options))
        until = time.monotonic() + _PORTS_SECONDS
        while self._options.port_base is not None and time.monotonic() < until:
            try:
                return Reservation(count, self._options.port_base)
            except AddressError:
                time.sleep(_TICK)
        return Reservation(count, None)


def _failure(outcome: Outcome) -> Failure:
    """What a restart is decided by."""
    cause = outcome.cause
    assert cause is not None
    steps = [record.step for record in outcome.progress if record.step is not None]
    return Failure(
        what=_what(cause),
        is_preemption=cause.was_preempted,
        was_raised=cause.error is not None or cause.uncaught is not None,
        step=max(steps, default=None),
        dispatches=max((record.dispatches for record in outcome.progress), default=0),
    )


def _what(cause: Ended) -> str:
    if cause.error is not None:
        return f"{cause.error.type}: {cause.error.message.partition(chr(10))[0]}"
    return cause.uncaught or f"exit {cause.exit.code}"


def _facts(number: int, cause: Ended, failure: Failure) -> dict[str, object]:
    return {
        "generation": number,
        "task": str(cause.task),
        "cause": failure.what,
        "kind": "preemption" if failure.is_preemption else "crash",
        "code": cause.exit.code,
        "last_step": failure.step,
        "dispatches": failure.dispatches,
    }
