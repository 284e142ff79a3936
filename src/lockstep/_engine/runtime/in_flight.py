"""What calls have started and is not known to be done: a dispatch returns before its results are there."""

from __future__ import annotations

from collections import deque
from typing import Any

# More than these are waited for by the next call, which then can say why they fail.
_MOST = 8


class InFlight:
    """The results of the last calls, an array of each."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()

    def add(self, result: Any) -> None:
        """Adds a call's."""
        self._waiting.append(result)

    def settle(self) -> None:
        """Waits until few are under way; raises what has broken any of those that are done."""
        waiting = self._waiting
        while waiting and (len(waiting) > _MOST or is_done(waiting[0])):
            result = waiting.popleft()
            if not result.is_deleted():
                result.block_until_ready()


def is_done(result: Any) -> bool:
    """Whether an array is there. One that was given away belongs to what comes after it."""
    try:
        return result.is_ready()
    except RuntimeError:  # It is deleted, maybe just now by another thread.
        return True
