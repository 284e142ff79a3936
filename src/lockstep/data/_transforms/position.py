"""`take`, `skip`, `shard`, `enumerate` and `prefetch`: selections by an element's index."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np

from lockstep.data import _spec
from lockstep.data._blocks import Block, BlockZipper, array_block
from lockstep.data._plan import CHUNK, INFINITE, UNKNOWN, Cursor, Node, Run, State, Transformation


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
            self._drop_some()
        return None if self._ended else self._upstream.next(limit)

    def _drop_some(self) -> None:
        with contextlib.suppress(Exception):  # An element that fails is passed over like any other.
            block = self._upstream.next(min(self._skip, CHUNK))
            self._ended = block is None
            self._skip -= len(block or ())
            return
        self._skip -= 1

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
        # To the last one that is kept and no further: what follows it may not be there yet, or cost something.
        while (block := self._read(self._before + (limit - 1) * self._count + 1)) is not None:
            # A slice of references: elements of other shards are never computed.
            kept = block[self._before :: self._count]
            self._before = (self._before - len(block)) % self._count
            if len(kept):
                return kept
        return None

    def _read(self, limit: int) -> Block | None:
        try:
            return self._upstream.next(limit)
        except Exception:
            self._before = (self._before - 1) % self._count
            raise

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


_PAIR = jax.tree.structure((0, 0))


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
