"""Lookups of tables in a step that is traced: which ids a batch needs, and windows in place of whole tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from keras import layers, ops

from lockstep._engine.keras.replica_step import replace_method
from lockstep._engine.keras.servers.tables import Table, watching
from lockstep._engine.runtime.buffers import aligned_empty
from lockstep._types import Array, Tracer
from lockstep.errors import UnsupportedError

# Programs are compiled for windows of 2^k rows, from this size on: smaller ones would save nothing.
_SMALLEST = 256
_INT32 = 1 << 31


@dataclass
class Lookups:
    """Lists what a step that was traced with whole tables looks up.

    Attributes:
        ids: By the number of a table: the ids of each of its lookups, in their order.
        whole: The numbers of the tables of which more than rows by ids was used.
    """

    ids: dict[int, list[Tracer]] = field(default_factory=dict[int, list[Tracer]])
    whole: set[int] = field(default_factory=set[int])


@contextlib.contextmanager
def recording_lookups(tables: Sequence[Table]) -> Generator[Lookups]:
    """Records the lookups of a step that is being traced with whole tables, of which only shapes are there."""
    numbers = {id(table): number for number, table in enumerate(tables)}
    found = Lookups()

    def note_read(table: Table) -> None:
        if id(table) in numbers:
            found.whole.add(numbers[id(table)])

    def lookup(table: Table, ids: Tracer) -> Tracer:
        found.ids.setdefault(numbers[id(table)], []).append(ids)
        with watching(None):
            return ops.take(table, ids, axis=0)

    with watching(note_read), _replaced_lookups(numbers, lookup):
        yield found


@contextlib.contextmanager
def windows(
    tables: Sequence[Table], sizes: Mapping[int, int], positions: Mapping[int, Sequence[Array]]
) -> Generator[None]:
    """Has a step that is being traced look rows up in windows.

    Args:
        tables: The tables of the model, by number.
        sizes: How many rows the window of each table has.
        positions: By the number of a table: in place of the ids of each lookup, their rows in the window.
    """
    numbers = {id(tables[number]): number for number in sizes}
    left = {number: iter(each) for number, each in positions.items()}
    shapes = [(tables[number], tables[number].shape) for number in sizes]

    def refuse(table: Table) -> None:
        if id(table) in numbers:
            raise whole_table(table)

    def lookup(table: Table, ids: Tracer) -> Tracer:
        rows = next(left[numbers[id(table)]])
        assert rows.shape == ids.shape, (rows.shape, ids.shape)
        with watching(None):
            return ops.take(table, rows, axis=0)

    try:
        # Keras maps variables to values of the same shape only.
        for number, size in sizes.items():
            tables[number]._shape = (size, *tables[number].shape[1:])
        with watching(refuse), _replaced_lookups(numbers, lookup):
            yield
    finally:
        for table, shape in shapes:
            table._shape = shape


def whole_table(table: Table) -> UnsupportedError:
    """Returns the error for a table that is used otherwise in one step than in the one that was traced first."""
    return UnsupportedError(
        f"A step must use a table in the same way for each batch. Received: {table.path!r}, whose rows are looked up "
        "by ids, and of which the whole is used in another batch. Use the layer's call alone."
    )


@contextlib.contextmanager
def _replaced_lookups(numbers: Mapping[int, int], lookup: Callable[[Table, Tracer], Tracer]) -> Generator[None]:
    """Replaces what `Embedding` computes of its table."""

    def wrap(theirs: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, inputs: Any) -> Any:
            table = vars(self).get("_embeddings")
            if id(table) not in numbers or self.lora_enabled or self.quantization_mode:
                return theirs(self, inputs)
            if inputs.dtype not in ("int32", "int64"):
                inputs = ops.cast(inputs, "int32")
            return ops.cast(lookup(table, inputs), dtype=self.compute_dtype)

        return call

    with replace_method(layers.Embedding, "call", wrap):
        yield


@dataclass(frozen=True)
class Needed:
    """The rows of a table that a batch needs.

    Attributes:
        ids: int64 (n,), sorted, each once.
        positions: In place of the ids of each lookup, their rows in the window; int32.
        size: How many rows the window has.
    """

    ids: np.ndarray
    positions: Sequence[np.ndarray]
    size: int

    def window(self, rows: np.ndarray) -> np.ndarray:
        """Returns rows (n, ...) as a window, padded by zeros."""
        window = aligned_empty((self.size, *rows.shape[1:]), rows.dtype)
        window[: len(rows)] = rows
        window[len(rows) :] = 0
        return window


def needed_rows(rows: int, lookups: Sequence[Array]) -> Needed:
    """Returns which rows of a table of so many rows lookups need.

    Ids count from the end if they are negative; those outside of the table read NaN, as in Keras on JAX.
    """
    flat = np.concatenate([each.ravel() for each in lookups]) if lookups else np.empty(0, np.int64)
    if flat.dtype.kind != "i":
        flat = flat.astype(np.int64)  # Of unsigned ids the difference to the table's end would be none.
    unique, places = _unique(flat)
    if unique.size and unique[0] < 0:
        flat = flat.astype(np.int64)
        unique, places = _unique(np.where(flat < 0, flat + rows, flat))
    # Ids outside of the table are the first or the last ones of those sorted.
    first, last = np.searchsorted(unique, [0, rows])
    size = max(_SMALLEST, 1 << max(0, int(last - first) - 1).bit_length())
    if first or last < len(unique):
        # A row after the window's last one.
        places = places - np.int32(first)
        places = np.where((places < 0) | (places >= last - first), np.int32(size), places)
    positions: list[np.ndarray] = []
    end = 0
    for each in lookups:
        positions.append(places[end : end + each.size].reshape(each.shape))
        end += each.size
    return Needed(unique[first:last], positions, size)


def _unique(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int64 ids in order, each once, and int32 where each of the given ones is among them.

    As `np.unique`: each id is sorted together with its place, as one number. For 6,656 int32 ids that takes 41 us,
    where `argsort` and what follows it take 69.
    """
    ordered = ids.astype(np.int64)
    if ids.itemsize > 4 and ids.size and (int(ids.min()) < -_INT32 or int(ids.max()) >= _INT32):
        return _unique_of_any(ordered)
    ordered <<= 32
    ordered |= np.arange(ids.size)
    ordered.sort()
    order = ordered.astype(np.int32)
    ordered >>= 32
    return _each_once(ordered, order)


def _unique_of_any(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(ids)
    return _each_once(ids[order], order)


def _each_once(ordered: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    is_new = np.empty(ordered.size, bool)
    is_new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    places = np.empty(ordered.size, np.int32)
    places[order] = np.cumsum(is_new, dtype=np.int32) - np.int32(1)
    return ordered[is_new], places


def leaks(error: Exception) -> bool:
    """Returns whether ids were computed inside of a loop or a branch, from where they cannot be taken out."""
    return isinstance(error, jax.errors.UnexpectedTracerError)
