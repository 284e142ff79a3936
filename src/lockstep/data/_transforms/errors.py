"""Errors of elements, each raised in its turn; `ignore_errors`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lockstep.data import _blocks
from lockstep.data._blocks import Block, FailedElement, join_blocks
from lockstep.data._map_program import is_of_element
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, State, Transformation, drop

_BEFORE, _USED = "before_block", "used_of_block"
_log = logging.getLogger("lockstep")


class Outcome(NamedTuple):
    """The result of the next `size` elements of a block: nothing, a block, or the error of one element."""

    size: int
    result: Block | FailedElement | None


class SequentialCompute:
    """A cursor that computes the upstream's blocks as it reads them, and raises each error in its turn.

    `outcomes` computes the elements of a block, in order. It is asked for outcomes one by one; after one that failed,
    only when the program goes on. `has_ended` returns whether no further block is to be read.
    """

    def __init__(
        self,
        upstream: Cursor,
        outcomes: Callable[[Block], Iterator[Outcome]],
        has_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._upstream = upstream
        self._compute = outcomes
        self._has_ended = has_ended
        # The block that is under way: its outcomes, its length, the state before it, and how much of it is used.
        self._outcomes: Iterator[Outcome] = iter(())
        self._length = 0
        self._before: State = None
        self._used = 0
        self._deferred: Exception | None = None

    def next(self, limit: int) -> Block | None:
        """Returns the next elements, up to the first that fails; raises the error of one that is first."""
        parts: list[Block] = []
        while (left := limit - sum(map(len, parts))) > 0 and self._deferred is None:
            if self._used < self._length:
                size, result = next(self._outcomes)
                # Raised below when the parts before it have been returned.
                if isinstance(result, FailedElement):
                    self._deferred = result.error
                    self._used += size - 1
                    continue
                self._used += size
                parts += [] if result is None else [result]
                continue
            # With parts in hand no further block is begun: its error would take them along.
            if parts or self._has_ended():
                break
            before = self._upstream.state()
            block = self._upstream.next(left)
            if block is None:
                break
            self._before, self._used, self._length = before, 0, len(block)
            self._outcomes = self._compute(block)
        if not parts and self._deferred is not None:
            failed, self._deferred = self._deferred, None
            # A state that is saved before the error was raised is before the element: a resumed run meets it, too.
            self._used += 1
            raise failed
        return join_blocks(parts) if parts else None

    def state(self) -> State:
        """Returns where it stands: before an element whose error is still to be raised."""
        if self._used == self._length:
            return self._upstream.state()
        return {_BEFORE: self._before, _USED: self._used}

    def restore(self, state: State) -> None:
        """Continues at a state."""
        if isinstance(state, dict) and _BEFORE in state:
            self._upstream.restore(state[_BEFORE])
            # Dropping computes nothing: only references are passed over.
            drop(self._upstream, state[_USED])
        else:
            self._upstream.restore(state)


def compute_block_or_elements(compute: Callable[[Block], Block | None], block: Block) -> Iterator[Outcome]:
    """Computes a block as a whole; if that fails, each element by itself."""
    try:
        whole: Block | FailedElement | None = compute(block)
    except Exception as error:
        whole = FailedElement(error)
    # A single element needs no second try, which might have effects.
    if not isinstance(whole, FailedElement) or len(block) == 1:
        yield Outcome(len(block), whole)
        return
    for i in range(len(block)):
        yield from compute_block_or_elements(compute, block[i : i + 1])


class IgnoreErrors(Transformation):
    """The elements that do not fail; if `log` is true, each one that is left out is logged as a warning."""

    def __init__(self, upstream: Node, log: bool) -> None:
        super().__init__(upstream)
        self._log = log
        # Over all passes, for messages and for whoever asks.
        self.count = 0

    def open(self, run: Run) -> Cursor:
        return _IgnoringCursor(self.upstream.open(run), self._ignore)

    def _ignore(self, error: Exception) -> None:
        """Counts an error of an element; raises any other."""
        if not is_of_element(error):
            raise error
        self.count += 1
        if self._log:
            _log.warning("Left out (%d so far): %s", self.count, error)

    @property
    def cardinality(self) -> int:
        # Nobody knows how many elements fail before they are computed.
        return 0 if self.upstream.cardinality == 0 else UNKNOWN


class _IgnoringCursor:
    """A cursor that computes elements to find those that fail."""

    def __init__(self, upstream: Cursor, ignore: Callable[[Exception], None]) -> None:
        self._ignore = ignore
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
            return _blocks.compute_block(block)
        except Exception as error:
            # Raised, so that each element is computed by itself and only the broken ones are dropped.
            if len(block) > 1:
                raise
            self._ignore(error)
            return None
