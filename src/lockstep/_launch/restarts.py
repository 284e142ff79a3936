"""Restarts: one attempt after another, and the decision whether and when to start again."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass

from lockstep._launch.evaluator import Standby
from lockstep._launch.options import Options
from lockstep._launch.recovery import Recovery
from lockstep._launch.root_cause import Ended, details, preemption, title
from lockstep._launch.supervisor import Attempt, Launch, Outcome
from lockstep._launch.task import Reservation, tasks_of
from lockstep._launch.task_files import Workspace
from lockstep.errors import AddressError

# Seconds between two looks for a signal, or for free ports.
_TICK = 0.05
# Seconds to wait for ports of an earlier attempt, until others are taken.
_PORTS_SECONDS = 2.0
_LONGEST_DELAY = 60.0
# So many times the same signal must end tasks at the same step until it counts as their own doing.
_SAME_SIGNALS = 3
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Failure:
    """Failure of an attempt.

    Attributes:
        what: A line for the root cause: equal for failures that are the same.
        is_preemption: Set if it was asked to end, and nothing went wrong.
        was_raised: Set if an exception of its own has ended the program: no signal, and no bare exit code.
        step: The number of the last step that any task had started, if that is known.
        dispatches: How often the tasks had started steps.
    """

    what: str
    is_preemption: bool = False
    was_raised: bool = False
    step: int | None = None
    dispatches: int = 0

    @property
    def place(self) -> tuple[str, int]:
        """The place in the training: the number of the step, or without one the dispatches of this attempt."""
        return ("dispatch", self.dispatches) if self.step is None else ("step", self.step)

    def is_like(self, other: Failure) -> bool:
        """Returns whether both are the same failure at the same step."""
        # Messages may hold numbers that differ each time, such as ports and process ids.
        same_text = _DIGITS.sub("0", self.what) == _DIGITS.sub("0", other.what)
        kinds = [(f.is_preemption, f.was_raised, f.place) for f in (self, other)]
        return same_text and kinds[0] == kinds[1]


@dataclass(frozen=True)
class Decision:
    """Decision after a failure: start again after `delay` seconds, or stop because of `reason`."""

    again: bool
    reason: str
    delay: float = 0.0


class Budget:
    """Budget of restarts: crashes and preemptions are counted apart.

    A restart after new steps follows at once; without any, each waits twice as long as the one before.
    """

    def __init__(self, options: Options) -> None:
        self._most = {False: options.max_restarts, True: options.preemptions}
        self._delay = options.restart_delay
        self._used = {False: 0, True: 0}
        self._crashes: list[Failure] = []
        self._furthest: int | None = None
        self._in_vain = 0

    def decide(self, failure: Failure) -> Decision:
        """Decides whether to start again after `failure`."""
        self._note_progress(failure)
        if not failure.is_preemption:
            self._crashes.append(failure)
            if reason := self._repeated(failure):
                return Decision(False, reason)
        kind, most = ("preemption", "--max-preemptions") if failure.is_preemption else ("restart", "--max-restarts")
        used, allowed = self._used[failure.is_preemption], self._most[failure.is_preemption]
        if used >= allowed:
            return Decision(False, f"{most} {allowed} is used up" if allowed else "")
        self._used[failure.is_preemption] += 1
        delay = 0.0
        if not failure.is_preemption and self._in_vain:
            delay = min(self._delay * 2.0 ** (self._in_vain - 1), _LONGEST_DELAY)
        return Decision(True, f"{kind} {used + 1} of {allowed}", delay)

    def _note_progress(self, failure: Failure) -> None:
        if failure.step is None:
            made_some = failure.dispatches > 0
        else:
            made_some = failure.dispatches > 0 and (self._furthest is None or failure.step > self._furthest)
            self._furthest = max(failure.step, self._furthest or 0)
        self._in_vain = 0 if made_some else self._in_vain + 1

    def _repeated(self, failure: Failure) -> str:
        """Returns why not to try again, if the same would happen."""
        # A signal comes from outside, and may come by chance.
        needed = 2 if failure.was_raised else _SAME_SIGNALS
        latest = self._crashes[-needed:]
        if len(latest) < needed or not all(map(failure.is_like, latest)):
            return ""
        if not failure.was_raised and not failure.dispatches:
            return ""
        kind, number = failure.place
        return f"the same failure came {'twice' if needed == 2 else f'{needed} times'} in a row, at {kind} {number}"


class Attempts:
    """Runs the tasks again and again, until they have finished or should not be started again."""

    def __init__(self, launch: Launch, workspace: Workspace) -> None:
        self._launch = launch
        self._options = launch.options
        self._workspace = workspace
        self._console = launch.console
        self._budget = Budget(self._options)
        self._standby = Standby(self._options, self._console)
        self._recovery = Recovery(self._console, self._options.report)

    def run(self, ports: Reservation) -> int:
        """Runs attempts, the first with these ports; returns the exit code."""
        number = 1
        while True:
            outcome = self._run_attempt(number, ports)
            cause, decision = outcome.cause, Decision(False, "")
            # An evaluator has a budget of its own, and a signal is no reason to start again.
            if outcome.signal is None and cause is not None and not cause.task.is_evaluator:
                decision = self._budget.decide(_failure(outcome, cause))
            self._report(outcome, decision)
            received = self._wait(decision.delay) if decision.again else None
            if not decision.again or received is not None:
                code = outcome.code if received is None else 128 + received
                self._recovery.ended(code)
                return code
            number += 1
            ports = self._new_ports()

    def _run_attempt(self, number: int, ports: Reservation) -> Outcome:
        attempt = Attempt(self._launch, number, self._workspace, ports.addresses, self._standby, self._recovery)
        with closing(attempt), ports:
            ports.free()
            attempt.start()
            outcome = attempt.run()
        if (cause := outcome.cause) is not None:
            failure = _failure(outcome, cause)
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

    def _report(self, outcome: Outcome, decision: Decision) -> None:
        """Shows the failure, if there is one, and last what follows from it."""
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
        """Waits; returns the signal that has come meanwhile, if any."""
        interrupts = self._launch.interrupts
        until = time.monotonic() + seconds
        while time.monotonic() < until and not interrupts.any:
            time.sleep(_TICK)
        return interrupts.take()

    def _new_ports(self) -> Reservation:
        """Returns the ports that were asked for, if they are free again in time, or any others."""
        count = len(tasks_of(self._options))
        until = time.monotonic() + _PORTS_SECONDS
        while self._options.port_base is not None and time.monotonic() < until:
            try:
                return Reservation(count, self._options.port_base)
            except AddressError:
                time.sleep(_TICK)
        return Reservation(count, None)


def _failure(outcome: Outcome, cause: Ended) -> Failure:
    steps = [record.step for record in outcome.progress if record.step is not None]
    if cause.error is not None:
        what = f"{cause.error.type}: {cause.error.message.partition(chr(10))[0]}"
    else:
        what = cause.uncaught or f"exit {cause.exit.code}"
    return Failure(
        what=what,
        is_preemption=cause.was_preempted,
        was_raised=cause.error is not None or cause.uncaught is not None,
        step=max(steps, default=None),
        dispatches=max((record.dispatches for record in outcome.progress), default=0),
    )
