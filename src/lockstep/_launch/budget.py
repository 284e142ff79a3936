"""Budget of restarts: the decision whether and when to start again."""

from __future__ import annotations

from lockstep._launch.failures import Decision, Failure
from lockstep._launch.options import Options

_LONGEST_DELAY = 60.0
# So many times the same signal must end tasks at the same step until it counts as their own doing.
_SAME_SIGNALS = 3


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
