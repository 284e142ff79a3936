"""Blocks: references to elements that are computed when they are taken, on the threads of a pool.

A *store* computes any of its elements on demand, many at once, always with the same result. A *block* refers to some
rows of a store. Shuffling, batching, skipping and sharding only move these references; reading, decoding and map
functions run where a block is taken at last, on any thread, and for those elements only that are used.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import jax
import numpy as np

from lockstep._types import Element, PyTreeDef
from lockstep.data import _columns
from lockstep.data._columns import Columns, Rows, concatenate
from lockstep.data._map_program import MapProgram

_Result = TypeVar("_Result")
_this_thread = threading.local()


class Store(Protocol):
    """Random access to elements by row. Safe to use from several threads."""

    @property
    def is_vectorized(self) -> bool:
        """Returns whether many rows at once cost little more than one: no user's function is called for each."""
        ...

    def take(self, rows: Rows) -> Columns:
        """Computes the elements of `rows`, at least one, in that order."""
        ...

    def describe(self, row: int) -> str:
        """Returns where an element comes from, for error messages."""
        ...


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of a store, int64 (k,), at least one, in order: elements that are not computed yet."""

    store: Store
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: Rows | slice) -> Block:
        return Block(self.store, self.rows[part])

    def take(self) -> Columns:
        """Computes the elements."""
        return self.store.take(self.rows)


@dataclass(frozen=True)
class FailedElement:
    """An error that stands in the place of the element that failed, and is raised when it is the element's turn."""

    error: Exception


@dataclass(frozen=True, eq=False)
class ArrayStore:
    """Rows of arrays in memory; `origin` says for messages where they come from, and `first` is the first's number."""

    columns: Columns
    origin: str = ""
    first: int = 0
    is_vectorized = True

    def take(self, rows: Rows) -> Columns:
        return _columns.take(self.columns, rows)

    def describe(self, row: int) -> str:
        hint = text_hint(_columns.element(self.columns, row)) if not self.origin else ""
        return f"{self.origin or 'element'} {self.first + row}{hint}"


@dataclass(frozen=True, eq=False)
class MixedStore:
    """Rows of several stores, numbered anew: int64 (k,) each, the store of a row and its row there."""

    stores: Sequence[Store]
    which: Rows
    rows: Rows

    @property
    def is_vectorized(self) -> bool:
        return all(s.is_vectorized for s in self.stores)

    def take(self, rows: Rows) -> Columns:
        # One call per store, however the rows are mixed: a store that decodes or runs a compiled function does so once.
        which, inner = self.which[rows], self.rows[rows]
        # Stable, so that the rows of one store stay in order: neighbours are read as a slice, without a copy.
        order = np.argsort(which, kind="stable")
        cuts = np.flatnonzero(np.diff(which[order])) + 1
        groups = np.split(order, cuts)
        parts = [self.stores[int(which[g[0]])].take(inner[g]) for g in groups]
        if len(groups) == 1:
            return parts[0]
        # The inverse permutation: concatenated groups return to the order that was asked for.
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return _columns.take(_columns.concatenate(parts), back)

    def describe(self, row: int) -> str:
        return self.stores[self.which[row]].describe(int(self.rows[row]))


@dataclass(frozen=True, eq=False)
class ZippedStore:
    """Several stores side by side: an element is a structure of their elements of the same row."""

    stores: Sequence[Store]
    structure: Any

    @property
    def is_vectorized(self) -> bool:
        return all(s.is_vectorized for s in self.stores)

    def take(self, rows: Rows) -> Columns:
        return jax.tree.unflatten(self.structure, [s.take(rows) for s in self.stores])

    def describe(self, row: int) -> str:
        return ", ".join(s.describe(row) for s in self.stores)


@dataclass(frozen=True, eq=False)
class BlockStore:
    """A block as a store: its elements numbered from 0."""

    block: Block

    @property
    def is_vectorized(self) -> bool:
        return self.block.store.is_vectorized

    def take(self, rows: Rows) -> Columns:
        return self.block[rows].take()

    def describe(self, row: int) -> str:
        return self.block.store.describe(int(self.block.rows[row]))


@dataclass(frozen=True, eq=False)
class MappedStore:
    """The results of a map function for the elements of another store."""

    program: MapProgram
    upstream: Store

    @property
    def is_vectorized(self) -> bool:
        return self.program.is_vectorized and self.upstream.is_vectorized

    def take(self, rows: Rows) -> Columns:
        return self.program(self.upstream.take(rows), lambda i: self.upstream.describe(int(rows[i])))

    def describe(self, row: int) -> str:
        return self.upstream.describe(row)


class BlockZipper:
    """Zips blocks of equal length into one block, whose elements combine one of each, a leaf of `structure`."""

    def __init__(self, structure: PyTreeDef) -> None:
        self._structure = structure
        self._last: ZippedStore | None = None

    def __call__(self, blocks: Sequence[Block]) -> Block:
        rows = blocks[0].rows
        stores: list[Store] = [b.store for b in blocks]
        # Equal rows need no renumbering, as where one source was zipped with a map of itself.
        if not all(b.rows is rows or np.array_equal(b.rows, rows) for b in blocks):
            stores = [BlockStore(b) for b in blocks]
            rows = np.arange(len(rows))
        last = self._last
        # `join_blocks` recognises stores by identity: a new one for each block would end every batch in a MixedStore.
        if last is None or any(a is not b for a, b in zip(stores, last.stores, strict=True)):
            self._last = last = ZippedStore(stores, self._structure)
        return Block(last, rows)


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Returns the elements of several blocks as one block."""
    if len(blocks) == 1:
        return blocks[0]
    rows = np.concatenate([b.rows for b in blocks])
    # The usual case, a batch of one source: row numbers are concatenated, nothing else is touched.
    if all(b.store is blocks[0].store for b in blocks):
        return Block(blocks[0].store, rows)
    return mix_rows([b.store for b in blocks], np.repeat(np.arange(len(blocks)), [len(b) for b in blocks]), rows)


def mix_rows(stores: Sequence[Store], which: Rows, rows: Rows) -> Block:
    """Returns rows of several stores as one block; a map function over all of them stays one call.

    One store may occur several times. `which` and `rows` are int64 (k,): the position of a row's store, its row there.
    """
    first = stores[0]
    # Mixing below the function keeps it one compiled call for the whole batch, instead of one for each source block.
    mapped = [s for s in stores if isinstance(s, MappedStore)]
    if (
        isinstance(first, MappedStore)
        and len(mapped) == len(stores)
        and all(s.program is first.program for s in mapped)
    ):
        inner = mix_rows([s.upstream for s in mapped], which, rows)
        return Block(MappedStore(first.program, inner.store), inner.rows)
    # By identity: stores hold arrays, and comparing those would cost more than mixing.
    distinct = {id(s): s for s in stores}
    if len(distinct) == 1:
        return Block(first, rows)
    numbers = {key: i for i, key in enumerate(distinct)}
    which = np.array([numbers[id(s)] for s in stores])[which]
    return Block(MixedStore(list(distinct.values()), which, rows), np.arange(len(rows)))


def array_block(columns: Columns, origin: str = "", first: int = 0) -> Block:
    """Returns computed elements as a block."""
    return Block(ArrayStore(columns, origin, first), np.arange(_columns.length(columns)))


def text_hint(element: Element) -> str:
    """Returns the short texts of an element, such as a file's name, which tell in an error where it comes from."""
    texts = [leaf.decode("utf-8", "replace") for leaf in jax.tree.leaves(element) if isinstance(leaf, bytes)]
    # A file's name helps in an error; a whole document does not.
    short = [text for text in texts if 0 < len(text) < 300 and text.isprintable()]
    return f" ({', '.join(short)})" if short else ""


def cores() -> int:
    """Returns how many threads can run at once."""
    # Not os.cpu_count: containers and batch systems pin a job to some of the machine's cores.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def submit(function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
    """Submits a call to the pool; a thread of the pool calls the function itself, at once."""
    # A thread of the pool that waited for another one could wait for ever: all of them may be waiting.
    if getattr(_this_thread, "inside", False):
        future: Future[_Result] = Future()
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        return future
    return _executor().submit(function, *arguments)


def map_parallel(
    function: Callable[[Any], _Result], values: Sequence[Any], workers: int | None = None
) -> list[_Result]:
    """Calls a function for each value, on up to `workers` threads; returns the results in order."""
    # Contiguous parts, one per thread: a future for each value would cost more than a small function.
    limit = min(workers or cores(), len(values))
    if limit <= 1:
        return [function(v) for v in values]
    parts = [values[i * len(values) // limit : (i + 1) * len(values) // limit] for i in range(limit)]
    futures = [submit(lambda part: [function(v) for v in part], part) for part in parts]
    return [result for future in futures for result in future.result()]


def compute_block(block: Block) -> Block:
    """Returns a block of computed elements, computed on all threads if that helps."""
    # A compiled function is one call for the whole block, and XLA spreads it over the cores itself.
    if block.store.is_vectorized or len(block) < 2:
        return array_block(block.take())
    parts = min(cores(), len(block))
    cuts = [slice(i * len(block) // parts, (i + 1) * len(block) // parts) for i in range(parts)]
    return array_block(concatenate(map_parallel(lambda cut: block[cut].take(), cuts)))


def elements_or_errors(block: Block, elements: Callable[[Block], list[Any]]) -> list[Any]:
    """Returns the elements of a block, a `FailedElement` for each that fails."""
    try:
        return elements(block)
    except Exception as error:
        if len(block) == 1:
            return [FailedElement(error)]
    return [element for i in range(len(block)) for element in elements_or_errors(block[i : i + 1], elements)]


@functools.cache
def _executor() -> ThreadPoolExecutor:
    # Marks the pool's threads, for `submit`.
    def mark() -> None:
        _this_thread.inside = True

    return ThreadPoolExecutor(cores(), thread_name_prefix="lockstep-data", initializer=mark)
