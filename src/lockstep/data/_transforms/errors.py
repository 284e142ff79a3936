"""`ignore_errors`: leaves out elements that cannot be computed, and counts them."""

from __future__ import annotations

import logging
from typing import Any

from lockstep.data import _pool
from lockstep.data._blocks import Block, joined
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, Transformation
from lockstep.errors import InputError

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

    def __init__(self, upstream: Cursor, ignored: Any) -> None:
        self._upstream = upstream
        self._ignored = ignored
        self.state = upstream.state
        self.restore = upstream.restore

    def next(self, limit: int) -> Block | None:
        while True:
            try:
                block = self._upstream.next(limit)
            except InputError as error:  # A source goes on behind what it cannot read.
                self._ignored(error)
                continue
            if block is None:
                return None
            if kept := self._computed(block):
                return kept

    def _computed(self, block: Block) -> Block | None:
        try:
            return _pool.computed(block)
        except InputError:
            kept = [part for part in _pool.each(self._one, range_of(block)) if part is not None]
            return joined(kept) if kept else None

    def _one(self, block: Block) -> Block | None:
        try:
            return _pool.computed(block)
        except InputError as error:
            self._ignored(error)
            return None


def range_of(block: Block) -> list[Block]:
    """Returns each element of a block as a block."""
    return [block[i : i + 1] for i in range(len(block))]
