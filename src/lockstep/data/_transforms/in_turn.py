"""Elements that are computed as they are read: each error is raised in its turn, and nothing around it is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lockstep.data._blocks import Block, join_blocks
from lockstep.data._failures import FailedElement
from lockstep.data._plan import Cursor, State, drop

_BEFORE, _USED = "before_block", "used_of_block"


class Outcome(NamedTuple):
    """Result of some elements of a block.

    Attributes:
        size: How many elements; one if an element before them in the block failed.
        result: What is given out for them: nothing, a block, or an error.
    """

    size: int
    result: Block | FailedElement | None


class SequentialCompute:
    """Reads a cursor block by block, and gives out what a function makes of them.

    Args:
        upstream: Gives the blocks.
        outcomes: Computes the elements of a block, in order. It is asked for outcomes one by one; after one that
            failed, only when the program goes on.
        has_ended: Returns whether no further block is to be read.
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
                self._take(next(self._outcomes), parts)
            elif parts or not self._begin_block(left):
                break
        if not parts and self._deferred is not None:
            failed, self._deferred = self._deferred, None
            self._used += 1
            raise failed
        return join_blocks(parts) if parts else None

    def _begin_block(self, limit: int) -> bool:
        if self._has_ended():
            return False
        before = self._upstream.state()
        block = self._upstream.next(limit)
        if block is None:
            return False
        self._before, self._used, self._length = before, 0, len(block)
        self._outcomes = self._compute(block)
        return True

    def _take(self, outcome: Outcome, parts: list[Block]) -> None:
        if isinstance(outcome.result, FailedElement):
            self._deferred = outcome.result.error
            self._used += outcome.size - 1
            return
        self._used += outcome.size
        if outcome.result is not None:
            parts.append(outcome.result)

    def state(self) -> State:
        """Returns where it stands: before an element whose error is still to be raised."""
        if self._used == self._length:
            return self._upstream.state()
        return {_BEFORE: self._before, _USED: self._used}

    def restore(self, state: State) -> None:
        """Continues at a state."""
        if isinstance(state, dict) and _BEFORE in state:
            self._upstream.restore(state[_BEFORE])
            drop(self._upstream, state[_USED])
        else:
            self._upstream.restore(state)


def compute_block_or_elements(compute: Callable[[Block], Block | None], block: Block) -> Iterator[Outcome]:
    """Yields what becomes of a block that is computed as a whole; if that fails, of each element by itself."""
    try:
        whole: Block | FailedElement | None = compute(block)
    except Exception as error:
        whole = FailedElement(error)
    if not isinstance(whole, FailedElement) or len(block) == 1:
        yield Outcome(len(block), whole)
        return
    for part in split_block(block):
        yield from compute_block_or_elements(compute, part)


def split_block(block: Block) -> list[Block]:
    """Returns each element of a block as a block."""
    return [block[i : i + 1] for i in range(len(block))]


def elements_or_errors(block: Block, elements: Callable[[Block], list[Any]]) -> list[Any]:
    """Returns the elements of a block; each that fails is a `Failed`."""
    try:
        return elements(block)
    except Exception as error:
        if len(block) == 1:
            return [FailedElement(error)]
    return [found for part in split_block(block) for found in elements_or_errors(part, elements)]
