"""Failures, as far as they decide about restarts: which are the same, and where in the training they came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep._launch.root_cause import Ended
from lockstep._launch.task_files import ProgressRecord

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


def failure_of(progress: Sequence[ProgressRecord], cause: Ended) -> Failure:
    """Returns the failure of an attempt, or of one task, with this root cause."""
    steps = [record.step for record in progress if record.step is not None]
    if cause.error is not None:
        what = f"{cause.error.type}: {cause.error.headline}"
    else:
        what = cause.uncaught or f"exit {cause.exit.code}"
    return Failure(
        what=what,
        is_preemption=cause.was_preempted,
        was_raised=cause.error is not None or cause.uncaught is not None,
        step=max(steps, default=None),
        dispatches=max((record.dispatches for record in progress), default=0),
    )
