"""One generation of tasks after another, until they have finished or should not be started again."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass

from lockstep._launch.evaluator import Standby
from lockstep._launch.options import Options
from lockstep._launch.recovery import Recovery
from lockstep._launch.root_cause import Ended, details, preemption, title
from lockstep._launch.supervisor import Equipment, Gang, Outcome
from lockstep._launch.task import Reservation, tasks_of
from lockstep._launch.task_files import Workspace
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


# MERGED restarts
# """Whether to start the tasks again after a failure, and when."""


_LONGEST_DELAY = 60.0
_SAME_SIGNALS = 3
"""So many times the same signal must end tasks at the same step until it counts as their own doing."""
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Failure:
    """How a generation of tasks has ended.

    Attributes:
        what: How its first cause shows: equal for failures that are the same.
        is_preemption: Whether it was asked to end, and nothing went wrong.
        was_raised: Whether an exception of its own has ended the program: no signal, and no bare exit code.
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
        """Where in the training it came: by the number of the step, or without one by the work of this generation."""
        return ("dispatch", self.dispatches) if self.step is None else ("step", self.step)

    def is_like(self, other: Failure) -> bool:
        """Whether both are the same failure at the same step."""
        return self._key() == other._key()

    def _key(self) -> tuple[object, ...]:
        return self.is_preemption, self.was_raised, self.place, _DIGITS.sub("0", self.what)


@dataclass(frozen=True)
class Decision:
    """What to do after a failure: start again after `delay` seconds, or stop because of `reason`."""

    again: bool
    reason: str
    delay: float = 0.0


class Budget:
    """How many more times the tasks are started again: crashes and preemptions are counted apart.

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
        """Return what to do after `failure`."""
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
        return Decision(True, f"{kind} {used + 1} of {allowed}", self._pause(failure))

    def _note_progress(self, failure: Failure) -> None:
        if failure.step is None:
            made_some = failure.dispatches > 0
        else:
            made_some = failure.dispatches > 0 and (self._furthest is None or failure.step > self._furthest)
            self._furthest = max(failure.step, self._furthest or 0)
        self._in_vain = 0 if made_some else self._in_vain + 1

    def _repeated(self, failure: Failure) -> str:
        """Why not to try again: the same would happen. A signal comes from outside, and may come by chance."""
        needed = 2 if failure.was_raised else _SAME_SIGNALS
        latest = self._crashes[-needed:]
        if len(latest) < needed or not all(map(failure.is_like, latest)):
            return ""
        if not failure.was_raised and not failure.dispatches:
            return ""
        kind, number = failure.place
        return f"the same failure came {'twice' if needed == 2 else f'{needed} times'} in a row, at {kind} {number}"

    def _pause(self, failure: Failure) -> float:
        if failure.is_preemption or not self._in_vain:
            return 0.0
        return min(self._delay * 2.0 ** (self._in_vain - 1), _LONGEST_DELAY)
