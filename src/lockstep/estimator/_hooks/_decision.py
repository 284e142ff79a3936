"""Decisions of the chief, on which all workers act after the same step."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.estimator._types import Session


class Decision:
    """A decision of the chief, broadcast to all workers.

    Args:
        signal: Name of the signal to the other workers.
    """

    def __init__(self, signal: str) -> None:
        self._signal = signal
        self._waits = True

    def is_made(self, session: Session, is_due: Callable[[], bool]) -> bool:
        """Returns whether to act after this step; in a single process, as soon as it is due.

        Args:
            session: The session.
            is_due: Called on the chief only, and not while its last signal is on the way.
        """
        if session.is_chief:
            if not self._asked and is_due():
                session.broadcast(self._signal)
                self._asked = True
            self._waits = self._asked
        if not session.has_received(self._signal):
            return False
        self._asked = False
        self._waits = not session.is_chief
        return True

    def next_step(self, step: int, on_chief: int) -> int:
        """Returns the step after which `is_made` must be called next.

        Args:
            step: Number of steps done.
            on_chief: The step after which the chief decides next.
        """
        # A signal arrives with some step, so workers that wait for one must check after each, in runs of one step.
        return step if self._waits else on_chief

    _asked = False
