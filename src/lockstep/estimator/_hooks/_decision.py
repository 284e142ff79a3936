"""Decisions that depend on one task, and that all tasks carry out after the same step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Decision:
    """Something that the chief decides.

    Args:
        word: What it tells the other tasks.
    """

    def __init__(self, word: str) -> None:
        self._word = word
        self._waits = True

    def is_made(self, session: Any, is_due: Callable[[], bool]) -> bool:
        """Returns, after a step, whether to act now; alone, as soon as it is due.

        Args:
            session: The session.
            is_due: Asked on the chief alone, and not while its last yes is on the way.
        """
        if session.is_chief:
            if not self._asked and is_due():
                session.ask(self._word)
                self._asked = True
            self._waits = self._asked
        if not session.told(self._word):
            return False
        self._asked = False
        self._waits = not session.is_chief
        return True

    def next_step(self, step: int, on_chief: int) -> int:
        """Returns after which step `is_made` must be asked next.

        Args:
            step: How many steps are done.
            on_chief: Where the chief decides next.
        """
        # The others are told after the only step of a run.
        return step if self._waits else on_chief

    _asked = False
