"""Whether to start the tasks again after a failure, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lockstep._launch.options import Options

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
