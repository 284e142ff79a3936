"""`cache`: elements that are computed once and stored, in memory or in files."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lockstep._types import ArrayLike
from lockstep.data import _blocks, _columns
from lockstep.data._blocks import Block
from lockstep.data._columns import Column, Columns, Ragged, Rows
from lockstep.data._plan import Cursor, Node, Run, State, Transformation
from lockstep.data._transforms.cache_file import CacheFile
from lockstep.data._transforms.errors import SequentialCompute, compute_block_or_elements


class Cache(Transformation):
    """The elements of the first pass, on every pass; kept at a path, or `None` for memory."""

    def __init__(self, upstream: Node, path: Path | None) -> None:
        super().__init__(upstream)
        self._path = path
        self._lock = threading.Lock()
        self._elements: CachedElements | None = None

    def open(self, run: Run) -> Cursor:
        return _CacheCursor(self, run)

    @property
    def first_pass(self) -> Run | None:
        """Returns the pass whose elements are kept, if there is one already."""
        elements = self._elements
        return elements and elements.run

    def elements_for(self, run: Run, restored: bool = False) -> CachedElements:
        """Returns the cached elements; a restored cursor gets those of the same first pass."""
        with self._lock:
            # A cursor that is restored in a new process must read the pass whose order its position is in.
            if self._elements is None or (restored and self._elements.run != run):
                path = self._path
                file = None if path is None else CacheFile(path, lambda: jax.tree.structure(self.upstream.spec))
                self._elements = CachedElements(self.upstream, run, file)
            return self._elements

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return Cache(inputs[0], self._path)


class _CacheCursor:
    def __init__(self, node: Cache, run: Run) -> None:
        self._node = node
        self._run = run
        self._elements: CachedElements | None = None
        self._at = 0
        # How many of the errors that came up while the elements were read this cursor has raised.
        self._raised = 0

    def next(self, limit: int) -> Block | None:
        if self._elements is None:
            self._elements = self._node.elements_for(self._run)
        # Read on demand: the first pass of a cache does not wait for the whole upstream.
        count = self._elements.available(self._at + limit, self._raised)
        if self._raised < len(self._elements.errors):
            index, error = self._elements.errors[self._raised]
            if index == self._at:
                self._raised += 1
                raise error
            count = min(count, index)
        first, self._at = self._at, min(self._at + limit, count)
        return Block(self._elements, np.arange(first, self._at)) if self._at > first else None

    def state(self) -> State:
        # A position names the pass whose elements are cached: another first pass may have another order.
        run = self._elements.run if self._elements is not None else self._node.first_pass or self._run
        return {"at": self._at, "raised": self._raised, "first_pass": [run.entropy, list(run.iteration)]}

    def restore(self, state: State) -> None:
        self._at, self._raised = state["at"], state.get("raised", 0)
        entropy, iteration = state["first_pass"]
        self._elements = self._node.elements_for(Run(entropy, tuple(iteration), self._run.path), restored=True)


class CachedElements:
    """The elements of one pass as a store, each computed when it is first used; kept in memory if `file` is `None`."""

    def __init__(self, node: Node, run: Run, file: CacheFile | None) -> None:
        self.run = run
        # One for whoever reads on, one for whoever computes: neither waits for the other.
        self._reading = threading.RLock()
        self._computing = threading.RLock()
        self._file = file
        self._memory = _Memory(max(node.cardinality, 0))
        # A finished cache of an earlier run: its upstream is never opened.
        complete = file is not None and file.is_complete
        self._cursor: Cursor | None = None if complete else node.open(run)
        if self._cursor is not None and file is not None:
            self._cursor = SequentialCompute(
                self._cursor, lambda block: compute_block_or_elements(_blocks.compute_block, block)
            )
        # Elements that failed when they were read: how many others come before each, and its error.
        self.errors: list[tuple[int, Exception]] = []
        self._count = file.count if complete and file is not None else 0
        # The elements that may still have to be computed: the first ordinal and the block of each piece.
        self._pieces: list[tuple[int, Block]] = []
        # The rows that they come from, all pieces together.
        self._origin: np.ndarray[Any, Any] | None = None

    @property
    def is_vectorized(self) -> bool:
        return self._file is not None or all(block.store.is_vectorized for _, block in self._pieces[:1])

    def available(self, wanted: int, raised: int) -> int:
        """Reads on until there are `wanted` elements, or no more, or one fails; returns how many there are.

        `raised` is how many of `errors` whoever asks has raised already.
        """
        with self._reading:
            while self._count < wanted and self._cursor is not None:
                try:
                    block = self._cursor.next(max(wanted - self._count, 1))
                except Exception as error:
                    # Every later pass meets the error at the same element, as the first one did.
                    self.errors.append((self._count, error))
                    if len(self.errors) > raised:
                        break
                    continue
                if block is not None:
                    self._add(block)
                    continue
                self._cursor = None
                if self._file is not None and not self.errors:  # Later runs must meet the error, too.
                    self._file.finish()
            return self._count

    def _add(self, block: Block) -> None:
        if self._file is not None:
            self._file.append(block.take())
        else:
            # Not while another thread writes to the columns that are about to be replaced.
            if self._count + len(block) > self._memory.room:
                with self._computing:
                    self._memory.reserve(self._count + len(block))
            self._pieces.append((self._count, block))
        self._count += len(block)

    def take(self, rows: Rows) -> Columns:
        if self._file is not None:
            return self._file.take(rows)
        absent = self._memory.absent(rows)
        if len(absent):
            self._compute(absent)
        return self._memory.take(rows)

    def _compute(self, absent: Rows) -> None:
        """Computes absent elements: the whole pieces that hold them if that is quick, else the elements alone."""
        pieces = self._pieces
        firsts = np.array([first for first, _ in pieces])
        absent = self._memory.absent(absent)  # If another thread was quicker, the pieces may be gone.
        numbers = np.searchsorted(firsts, absent, side="right") - 1
        for number in np.unique(numbers):
            first, block = pieces[number]
            # A compiled function is faster for the whole piece; decoding images is not, so only those that are asked
            # for.
            if not block.store.is_vectorized or not self._compute_all(first, block):
                rows = absent[numbers == number]
                columns = block[rows - first].take()
                with self._computing:
                    self._memory.put(rows, columns)
        if self._cursor is None and self._memory.is_full(self._count):
            self._pieces = []  # Everything is computed: the upstream's blocks, and what they hold, can go.

    def _compute_all(self, first: int, block: Block) -> bool:
        """Computes a piece; returns whether that is possible, or one of its elements fails."""
        with self._computing:
            rows = self._memory.absent(np.arange(first, first + len(block)))
            try:
                if len(rows):
                    self._memory.put(rows, block[rows - first].take())
            except Exception:
                return False
            return True

    def origin(self, rows: Rows) -> Block | None:
        """Returns the upstream rows of elements, if all are of one store in memory, else `None`."""
        pieces = self._pieces
        if self._file is not None or not pieces or any(b.store is not pieces[0][1].store for _, b in pieces):
            return None
        if self._origin is None or len(self._origin) < self._count:
            self._origin = np.concatenate([block.rows for _, block in pieces])
        return Block(pieces[0][1].store, self._origin[rows])

    @property
    def columns(self) -> Columns | None:
        """Returns all elements, if they are there, in memory."""
        return None if self._file is not None else self._memory.columns

    def describe(self, row: int) -> str:
        for first, block in reversed(self._pieces):
            if first <= row:
                return block.store.describe(int(block.rows[row - first]))
        return f"element {row}"


class _Memory:
    """Growing columns, with a mask of the rows that are computed."""

    def __init__(self, expected: int) -> None:
        self._filled = np.zeros(expected, bool)
        self._columns: list[Any] | None = None
        self._structure: Any = None
        self._all = False

    @property
    def room(self) -> int:
        """Returns for how many rows there is room."""
        return len(self._filled)

    def reserve(self, count: int) -> None:
        """Makes room for `count` rows."""
        # Doubled, so that n elements are copied O(n) times altogether.
        self._filled = _grow(self._filled, max(count, 2 * len(self._filled)))
        if self._columns is not None:
            self._columns = [_grow(c, len(self._filled)) for c in self._columns]

    def absent(self, rows: Rows) -> Rows:
        """Returns the rows of `rows` that are not computed yet."""
        return rows[:0] if self._all else rows[~self._filled[rows]]

    def is_full(self, count: int) -> bool:
        """Returns whether the first `count` rows are there; there will be no others."""
        self._all = self._all or bool(self._filled[:count].all())
        return self._all

    @property
    def columns(self) -> Columns | None:
        """Returns all rows, if all are there."""
        if not self._all or self._columns is None:
            return None
        return self._structure.unflatten([_as_column(c) for c in self._columns])

    def put(self, rows: Rows, columns: Columns) -> None:
        """Stores rows."""
        leaves, structure = jax.tree.flatten(columns)
        if self._columns is None:
            self._structure = structure
            self._columns = [
                _ObjectColumn(np.empty(len(self._filled), object))
                if isinstance(leaf, Ragged)
                else np.empty((len(self._filled), *leaf.shape[1:]), leaf.dtype)
                for leaf in leaves
            ]
        self._columns = [_write_rows(target, rows, leaf) for target, leaf in zip(self._columns, leaves, strict=True)]
        self._filled[rows] = True

    def take(self, rows: Rows) -> Columns:
        assert self._columns is not None
        return _columns.take(self._structure.unflatten([_as_column(c) for c in self._columns]), rows)


class _ObjectColumn:
    """A growing column of rows of different shapes."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)


def _write_rows(target: Column, rows: Rows, leaf: ArrayLike) -> Any:
    """Stores rows in a column, which becomes one of objects if they do not fit."""
    uniform = isinstance(leaf, np.ndarray) and isinstance(target, np.ndarray)
    if uniform and leaf.shape[1:] == target.shape[1:] and leaf.dtype == target.dtype:
        # Assigning to a slice is a plain copy of memory.
        target[_columns.as_slice(rows) or rows] = leaf
        return target
    if not isinstance(target, _ObjectColumn):
        old, target = target, _ObjectColumn(np.empty(len(target), object))
        for i in range(len(old)):
            target.values[i] = old[i]
    values = leaf.values if isinstance(leaf, Ragged) else leaf
    for row, value in zip(rows, values, strict=True):
        target.values[row] = value
    return target


def _as_column(column: Column) -> Any:
    return Ragged(column.values) if isinstance(column, _ObjectColumn) else column


def _grow(column: Column, count: int) -> Any:
    if isinstance(column, _ObjectColumn):
        return _ObjectColumn(_grow(column.values, count))
    result = np.zeros((count, *column.shape[1:]), column.dtype)
    result[: len(column)] = column
    return result
