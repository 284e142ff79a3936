"""`assert_cardinality`: an error where a dataset has another number of elements than the program says."""

from __future__ import annotations

from lockstep.data._blocks import Block
from lockstep.data._plan import INFINITE, Cursor, Node, Run, State, Transformation
from lockstep.errors import CardinalityError


class AssertCardinality(Transformation):
    """A check of the number of elements.

    Args:
        upstream: Gives the elements.
        expected: How many there must be, or `INFINITE`.
    """

    def __init__(self, upstream: Node, expected: int) -> None:
        super().__init__(upstream)
        self._expected = expected

    def open(self, run: Run) -> Cursor:
        return _AssertCursor(self.upstream.open(run), self._expected)

    @property
    def cardinality(self) -> int:
        return self._expected

    @property
    def label(self) -> str:
        return f"AssertCardinality({self._expected})"


class _AssertCursor:
    def __init__(self, upstream: Cursor, expected: int) -> None:
        self._upstream = upstream
        self._expected = expected
        self._count = 0

    def next(self, limit: int) -> Block | None:
        left = self._expected - self._count
        try:
            # One more is asked for at the end: only so a surplus element shows.
            block = self._upstream.next(limit if self._expected == INFINITE else min(limit, left) or 1)
        except Exception:
            self._count += 1  # An element that fails is one, too.
            raise
        if block is None and left != 0:
            raise self._error(f"only {self._count}")
        if block is not None and left == 0:
            raise self._error(f"at least {self._count + len(block)}")
        self._count += len(block or ())
        return block

    def _error(self, received: str) -> CardinalityError:
        expected = "an infinite number of" if self._expected == INFINITE else self._expected
        return CardinalityError(
            f"Input dataset was expected to contain {expected} elements but contained {received} elements. Check the "
            "source of the data, or the number given to assert_cardinality."
        )

    def state(self) -> State:
        return {"upstream": self._upstream.state(), "count": self._count}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["upstream"])
        self._count = state["count"]
