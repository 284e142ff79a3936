"""`ignore_errors`: leaves out elements that cannot be computed, and counts them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from lockstep.data import _pool
from lockstep.data._blocks import Block
from lockstep.data._failures import is_of_element
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, Transformation
from lockstep.data._transforms.in_turn import InTurn, together_or_each

_log = logging.getLogger("lockstep")


class IgnoreErrors(Transformation):
    """The elements that can be computed.

    Args:
        upstream: Gives the elements.
        log: Whether each one that is left out is logged as a warning.
    """

    def __init__(self, upstream: Node, log: bool) -> None:
        super().__init__(upstream)
        self._log = log
        # Over all passes, for messages and for whoever asks.
        self.count = 0

    def open(self, run: Run) -> Cursor:
        return _IgnoringCursor(self.upstream.open(run), self._ignored)

    def _ignored(self, error: Exception) -> None:
        self.count += 1
        if self._log:
            _log.warning("Left out (%d so far): %s", self.count, error)

    @property
    def cardinality(self) -> int:
        return 0 if self.upstream.cardinality == 0 else UNKNOWN


class _IgnoringCursor:
    """Computes what it reads, to know."""

    def __init__(self, upstream: Cursor, ignored: Callable[[Exception], None]) -> None:
        self._ignored = ignored
        self._computed = InTurn(upstream, lambda block: together_or_each(self._kept, block))
        self.state, self.restore = self._computed.state, self._computed.restore

    def next(self, limit: int) -> Block | None:
        while True:
            try:
                return self._computed.next(limit)
            except Exception as error:  # A source goes on behind what it cannot read.
                self._ignore(error)

    def _kept(self, block: Block) -> Block | None:
        try:
            return _pool.computed(block)
        except Exception as error:
            if len(block) > 1:
                raise
            self._ignore(error)
            return None

    def _ignore(self, error: Exception) -> None:
        """Counts an error of an element; raises any other."""
        if not is_of_element(error):
            raise error
        self._ignored(error)
