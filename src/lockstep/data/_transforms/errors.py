"""`ignore_errors`: elements that fail are dropped and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from lockstep.data import _pool
from lockstep.data._blocks import Block
from lockstep.data._failures import is_of_element
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, Transformation
from lockstep.data._transforms.sequential import SequentialCompute, compute_block_or_elements

_log = logging.getLogger("lockstep")


class IgnoreErrors(Transformation):
    """The elements that do not fail.

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
        return _IgnoringCursor(self.upstream.open(run), self._count_error)

    def _count_error(self, error: Exception) -> None:
        self.count += 1
        if self._log:
            _log.warning("Left out (%d so far): %s", self.count, error)

    @property
    def cardinality(self) -> int:
        # Nobody knows how many elements fail before they are computed.
        return 0 if self.upstream.cardinality == 0 else UNKNOWN


class _IgnoringCursor:
    """A cursor that computes elements to find those that fail."""

    def __init__(self, upstream: Cursor, on_error: Callable[[Exception], None]) -> None:
        self._count_error = on_error
        self._computed = SequentialCompute(
            upstream, lambda block: compute_block_or_elements(self._compute_or_drop, block)
        )
        self.state, self.restore = self._computed.state, self._computed.restore

    def next(self, limit: int) -> Block | None:
        while True:
            try:
                return self._computed.next(limit)
            except Exception as error:  # A source goes on behind what it cannot read.
                self._ignore(error)

    def _compute_or_drop(self, block: Block) -> Block | None:
        try:
            return _pool.compute_block(block)
        except Exception as error:
            # Raised, so that each element is computed by itself and only the broken ones are dropped.
            if len(block) > 1:
                raise
            self._ignore(error)
            return None

    def _ignore(self, error: Exception) -> None:
        """Counts an error of an element; raises any other."""
        if not is_of_element(error):
            raise error
        self._count_error(error)
