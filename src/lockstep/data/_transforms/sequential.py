"""Sequential computation: elements are computed as they are read, and an error costs one element only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lockstep.data._blocks import Block, join_blocks
from lockstep.data._failures import FailedElement
from lockstep.data._plan import Cursor, State, drop

_BEFORE, _USED = "before_block", "used_of_block"


class Outcome(NamedTuple):
    """The result of some elements of a block.

    Attributes:
        size: How many elements; one if an element before them in the block failed.
        result: What is given out for them: nothing, a block, or an error.
    """

    size: int
    result: Block | FailedElement | None


class SequentialCompute:
    """A cursor that computes the upstream's blocks as it reads them, and raises each error in its turn.

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
            # With parts in hand no further block is begun: its error would take them along.
            elif parts or not self._begin_block(left):
                break
        if not parts and self._deferred is not None:
            failed, self._deferred = self._deferred, None
            # A state that is saved before the error was raised is before the element: a resumed run meets it, too.
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
        # Raised by `next` when the parts before it have been returned.
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
    for part in split_block(block):
        yield from compute_block_or_elements(compute, part)


def split_block(block: Block) -> list[Block]:
    """Returns each element of a block as a block."""
    return [block[i : i + 1] for i in range(len(block))]


def elements_or_errors(block: Block, elements: Callable[[Block], list[Any]]) -> list[Any]:
    """Returns the elements of a block, a `FailedElement` for each that fails."""
    try:
        return elements(block)
    except Exception as error:
        if len(block) == 1:
            return [FailedElement(error)]
    return [element for part in split_block(block) for element in elements_or_errors(part, elements)]
