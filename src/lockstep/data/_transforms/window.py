"""`window`: datasets of neighbouring elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lockstep.data import _columns
from lockstep.data._blocks import Block, array_block, join_blocks
from lockstep.data._plan import Cursor, Node, Run, State, Transformation
from lockstep.data._spec import DatasetSpec


class Window(Transformation):
    """Datasets of neighbouring elements, one for each array of an element.

    Args:
        upstream: Gives the elements.
        size: How many elements of a window.
        shift: How far a window is from the one before.
        stride: How far its elements are from each other.
        drop: Whether windows with fewer elements are left out.
        dataset_of: Makes a dataset of columns.
    """

    def __init__(
        self, upstream: Node, size: int, shift: int, stride: int, drop: bool, dataset_of: Callable[[Any], Any]
    ) -> None:
        super().__init__(upstream)
        self._sizes = (size, shift, stride, drop)
        self._dataset_of = dataset_of

    def open(self, run: Run) -> Cursor:
        return _WindowCursor(self.upstream.open(run), self._sizes, self._dataset_of)

    @property
    def spec(self) -> Any:
        return jax.tree.map(DatasetSpec, self.upstream.spec)

    @property
    def cardinality(self) -> int:
        size, shift, stride, dropped = self._sizes
        count = self.upstream.cardinality
        if count < 0:
            return count
        if not dropped:
            # Rounded up: the last windows may have fewer elements.
            return -(-count // shift)
        span = (size - 1) * stride + 1
        return max((count - span) // shift + 1, 0)

    @property
    def label(self) -> str:
        return f"Window{self._sizes}"


class _WindowCursor:
    """A cursor whose state is the upstream's before the next window, so that its elements are read again."""

    def __init__(self, upstream: Cursor, sizes: tuple[int, int, int, bool], dataset_of: Callable[[Any], Any]) -> None:
        self._upstream = upstream
        self._size, self._shift, self._stride, self._drop = sizes
        self._dataset_of = dataset_of
        # Pieces that hold the elements from the next window's first on: their blocks, the states before them, and how
        # many elements of the first are passed.
        self._pieces: list[tuple[State, Block]] = []
        self._passed = 0
        self._ended = False

    def next(self, limit: int) -> Block | None:
        span = (self._size - 1) * self._stride + 1
        self._read(span)
        rest = self._available_block()
        if rest is None or (self._drop and len(rest) < span):
            return None
        chosen = rest[: span : self._stride]
        self._advance()
        # Computed once here: windows overlap, and each is a dataset of its own.
        element = jax.tree.map(lambda c: self._dataset_of(c), chosen.take())
        return array_block(_columns.stack([element]))

    def _read(self, count: int) -> None:
        while self._available() < count and not self._ended:
            before = self._upstream.state()
            block = self._upstream.next(count - self._available())
            if block is None:
                self._ended = True
            else:
                self._pieces.append((before, block))

    def _available(self) -> int:
        return sum(len(b) for _, b in self._pieces) - self._passed

    def _available_block(self) -> Block | None:
        if self._available() <= 0:
            return None
        return join_blocks([b for _, b in self._pieces])[self._passed :]

    def _advance(self) -> None:
        self._read(self._shift)
        self._passed += min(self._shift, self._available())
        while len(self._pieces) > 0 and self._passed >= len(self._pieces[0][1]):
            self._passed -= len(self._pieces.pop(0)[1])

    def state(self) -> State:
        # Of the oldest piece that is needed: its elements are read again from there.
        before = self._pieces[0][0] if self._pieces else self._upstream.state()
        return {"before": before, "passed": self._passed}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["before"])
        self._passed = state["passed"]
