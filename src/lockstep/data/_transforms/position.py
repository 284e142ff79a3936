"""`take`, `skip`, `shard`, `enumerate`, `window`, `prefetch` and `assert_cardinality`: by an element's index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lockstep.data import _columns, _spec
from lockstep.data._blocks import Block, BlockZipper, array_block, join_blocks
from lockstep.data._plan import CHUNK, INFINITE, UNKNOWN, Cursor, Node, Run, State, Transformation
from lockstep.data._spec import DatasetSpec
from lockstep.errors import CardinalityError

_PAIR = jax.tree.structure((0, 0))


class Take(Transformation):
    """The first elements; all of them if the count is negative."""

    def __init__(self, upstream: Node, count: int) -> None:
        super().__init__(upstream)
        self._count = count

    def open(self, run: Run) -> Cursor:
        upstream = self.upstream.open(run)
        # No cursor of its own where it would change nothing.
        return upstream if self._count < 0 else _TakeCursor(upstream, self._count)

    @property
    def cardinality(self) -> int:
        count = self.upstream.cardinality
        if self._count < 0 or count == UNKNOWN:
            return count
        return self._count if count == INFINITE else min(count, self._count)

    @property
    def label(self) -> str:
        return f"Take({self._count})"


class _TakeCursor:
    def __init__(self, upstream: Cursor, count: int) -> None:
        self._upstream = upstream
        self._left = count

    def next(self, limit: int) -> Block | None:
        try:
            block = self._upstream.next(min(limit, self._left)) if self._left > 0 else None
        except Exception:
            # An element that fails counts as taken, as in tf.data.
            self._left -= 1
            raise
        self._left -= len(block) if block else self._left
        return block

    def state(self) -> State:
        return {"upstream": self._upstream.state(), "left": self._left}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["upstream"])
        self._left = state["left"]


class Skip(Transformation):
    """The elements after the first `count`; none if `count` is negative."""

    def __init__(self, upstream: Node, count: int) -> None:
        super().__init__(upstream)
        self._count = count

    def open(self, run: Run) -> Cursor:
        return _SkipCursor(self.upstream.open(run), self._count)

    @property
    def cardinality(self) -> int:
        count = self.upstream.cardinality
        if self._count < 0:
            return 0
        return count if count < 0 else max(count - self._count, 0)

    @property
    def label(self) -> str:
        return f"Skip({self._count})"


class _SkipCursor:
    def __init__(self, upstream: Cursor, count: int) -> None:
        self._upstream = upstream
        self._skip = count
        self._ended = count < 0

    def next(self, limit: int) -> Block | None:
        # On the first `next`, so that opening a plan reads nothing.
        while self._skip > 0 and not self._ended:
            try:
                block = self._upstream.next(min(self._skip, CHUNK))
                self._ended = block is None
                self._skip -= len(block or ())
            except Exception:  # An element that fails is passed over like any other.
                self._skip -= 1
        return None if self._ended else self._upstream.next(limit)

    def state(self) -> State:
        return {"upstream": self._upstream.state(), "skip": self._skip, "ended": self._ended}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["upstream"])
        self._skip, self._ended = state["skip"], state["ended"]


class Shard(Transformation):
    """The elements of index `index` modulo `count`."""

    def __init__(self, upstream: Node, count: int, index: int) -> None:
        super().__init__(upstream)
        self._count = count
        self._index = index

    def open(self, run: Run) -> Cursor:
        return _ShardCursor(self.upstream.open(run), self._count, self._index)

    @property
    def cardinality(self) -> int:
        count = self.upstream.cardinality
        return count if count < 0 else (count - self._index + self._count - 1) // self._count

    @property
    def label(self) -> str:
        return f"Shard({self._count}, {self._index})"


class _ShardCursor:
    def __init__(self, upstream: Cursor, count: int, index: int) -> None:
        self._upstream = upstream
        self._count = count
        # How many elements come before the next one that is kept.
        self._before = index

    def next(self, limit: int) -> Block | None:
        while True:
            try:
                # To the last one that is kept and no further: what follows may not be there yet, or cost something.
                block = self._upstream.next(self._before + (limit - 1) * self._count + 1)
            except Exception:
                self._before = (self._before - 1) % self._count
                raise
            if block is None:
                return None
            # A slice of references: elements of other shards are never computed.
            kept = block[self._before :: self._count]
            self._before = (self._before - len(block)) % self._count
            if len(kept):
                return kept

    def state(self) -> State:
        return {"upstream": self._upstream.state(), "before": self._before}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["upstream"])
        self._before = state["before"]


class Enumerate(Transformation):
    """Pairs of an element's number, int64, and the element."""

    def __init__(self, upstream: Node, start: int) -> None:
        super().__init__(upstream)
        self._start = start

    def open(self, run: Run) -> Cursor:
        return _EnumerateCursor(self.upstream.open(run), self._start)

    @property
    def spec(self) -> Any:
        return (_spec.TensorSpec((), np.int64), self.upstream.spec)

    @property
    def label(self) -> str:
        return f"Enumerate({self._start})"


class _EnumerateCursor:
    def __init__(self, upstream: Cursor, start: int) -> None:
        self._upstream = upstream
        self._number = start
        self._beside = BlockZipper(_PAIR)

    def next(self, limit: int) -> Block | None:
        try:
            block = self._upstream.next(limit)
        except Exception:
            self._number += 1
            raise
        if block is None:
            return None
        # int64, TensorFlow's dtype, on every platform.
        numbers = np.arange(self._number, self._number + len(block))
        self._number += len(block)
        return self._beside([array_block(numbers), block])

    def state(self) -> State:
        return {"upstream": self._upstream.state(), "number": self._number}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["upstream"])
        self._number = state["number"]


class Prefetch(Transformation):
    """A mark that elements are computed ahead; it changes no element."""

    def __init__(self, upstream: Node, size: int) -> None:
        super().__init__(upstream)
        self.size = size

    def open(self, run: Run) -> Cursor:
        return self.upstream.open(run)


class HintedShard(Transformation):
    """A mark that a distribution replaces by a shard for each worker; until then, all elements."""

    def open(self, run: Run) -> Cursor:
        return self.upstream.open(run)


class Window(Transformation):
    """Datasets of neighbouring elements, one for each array of an element; `dataset_of` makes one of columns."""

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
        left = self._available()
        if left <= 0 or (self._drop and left < span):
            return None
        chosen = join_blocks([b for _, b in self._pieces])[self._passed :][: span : self._stride]
        self._read(self._shift)
        self._passed += min(self._shift, self._available())
        while self._pieces and self._passed >= len(self._pieces[0][1]):
            self._passed -= len(self._pieces.pop(0)[1])
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

    def state(self) -> State:
        # Of the oldest piece that is needed: its elements are read again from there.
        before = self._pieces[0][0] if self._pieces else self._upstream.state()
        return {"before": before, "passed": self._passed}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["before"])
        self._passed = state["passed"]


class AssertCardinality(Transformation):
    """A check of the number of elements, which may be `INFINITE`."""

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
        if (block is None and left != 0) or (block is not None and left == 0):
            expected = "an infinite number of" if self._expected == INFINITE else self._expected
            received = f"only {self._count}" if block is None else f"at least {self._count + len(block)}"
            raise CardinalityError(
                f"Input dataset was expected to contain {expected} elements but contained {received} elements. Check "
                "the source of the data, or the number given to assert_cardinality."
            )
        self._count += len(block or ())
        return block

    def state(self) -> State:
        return {"upstream": self._upstream.state(), "count": self._count}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["upstream"])
        self._count = state["count"]
