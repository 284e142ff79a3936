"""Columns: many elements as one pytree, each leaf of which holds the stacked values of all.

A *column* is a numpy array with one row per element, or `Ragged` where the rows differ in shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from lockstep._types import ArrayLike, Element, PyTree, PyTreeDef
from lockstep.data._batch_rows import BatchRows, address_of, is_at
from lockstep.data._composite import kind_of
from lockstep.data._structure import TEXT, as_array, flatten, normalize

Rows = NDArray[np.int64]

Column: TypeAlias = Any
"""A numpy array with one row per element, or `Ragged`."""

Columns: TypeAlias = Any
"""A pytree of columns of one length."""


class Ragged:
    """A column of rows that differ in shape, or of datasets."""

    def __init__(self, values: NDArray[np.object_]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        chosen = self.values[rows]
        return Ragged(chosen) if isinstance(rows, (slice, np.ndarray)) else chosen


def length(columns: Columns) -> int:
    """Returns the number of elements; 1 for elements without any leaf."""
    leaves = jax.tree.leaves(columns)
    return len(leaves[0]) if leaves else 1


def take(columns: Columns, rows: Rows) -> Columns:
    """Returns some of the elements, in the order of `rows`; without a copy if they follow each other."""
    # A slice is a view: batches of unshuffled arrays are not copied here.
    run = as_slice(rows)
    if run is not None:
        return jax.tree.map(lambda c: c[run], columns)
    return jax.tree.map(lambda c: c[rows] if isinstance(c, Ragged) else c.take(rows, axis=0), columns)


def as_slice(rows: Rows) -> slice | None:
    """Returns ascending neighbours as a slice."""
    k = len(rows)
    # The ends decide for almost all rows that are not a run, so np.diff is rarely computed.
    if k and rows[-1] - rows[0] == k - 1 and (k < 3 or (np.diff(rows) == 1).all()):
        return slice(int(rows[0]), int(rows[0]) + k)
    return None


def element(columns: Columns, row: int) -> Any:
    """Returns one element."""
    return jax.tree.map(lambda c: c[row], columns)


def elements(columns: Columns) -> list[Any]:
    """Returns all elements, one by one."""
    leaves, structure = jax.tree.flatten(columns)
    return [structure.unflatten(values) for values in zip(*leaves, strict=True)] if leaves else [columns]


def as_read_only(columns: Columns) -> Columns:
    """Returns the same elements in views that cannot be written to; nothing is copied."""

    def protect(column: Column) -> Column:
        if isinstance(column, Ragged):
            return Ragged(_object_array([_as_read_only_array(value) for value in column.values]))
        return _as_read_only_array(column)

    return jax.tree.map(protect, columns)


def stack(items: Sequence[Any]) -> Columns:
    """Returns normalised elements of one structure as columns; raises `ValueError` if their structures differ."""
    return jax.tree.map(lambda *values: column(values), *items)


def column(values: Sequence[Any]) -> Any:
    """Returns leaves of several elements as a column."""
    first = values[0]
    is_text = isinstance(first, bytes)
    # jax.tree.map descends by the first element's structure: where that has a leaf, another element may have a subtree.
    for value in values:
        if value is None or isinstance(value, (tuple, dict)) or isinstance(value, bytes) != is_text:
            raise ValueError(f"A value is {type(first).__name__} in one element and {type(value).__name__} in another")
    if is_text:
        return _object_array(values)
    if isinstance(first, np.generic):
        return np.asarray(values, first.dtype if all(v.dtype == first.dtype for v in values) else None)
    if isinstance(first, np.ndarray) and all(isinstance(v, np.ndarray) and v.shape == first.shape for v in values):
        return np.stack(values)
    return Ragged(_object_array(values))


class ColumnsBuilder:
    """A builder of the columns of `count` normalised elements that come one by one.

    Arrays of one shape are copied once, into their column, when they are added: who made an element may then change it.
    A photograph of 600 kB copied twice took 15 % of the time of reading, decoding and resizing it. Arrays that are the
    rows of a block one after another are not copied at all.
    """

    def __init__(self, count: int, rows: BatchRows | None = None) -> None:
        self._count = count
        self._rows = rows
        self._structure: PyTreeDef | None = None
        self._leaves: list[_ColumnBuilder] = []

    def add(self, item: Element) -> None:
        """Adds the next element; raises `ValueError` if its structure is not that of the first."""
        leaves, structure = flatten(item)
        if self._structure is None:
            self._structure = structure
            self._leaves = [_ColumnBuilder(self._count, self._rows) for _ in leaves]
        elif structure != self._structure:
            # Its error says where they differ.
            stack([self._structure.unflatten([builder.values[0] for builder in self._leaves]), item])
        for builder, leaf in zip(self._leaves, leaves, strict=True):
            builder.add(leaf)

    @property
    def is_in_place(self) -> bool:
        """Returns whether a column has not been copied, because its values were made where they belong."""
        return any(builder.is_in_place for builder in self._leaves)

    def columns(self) -> Columns:
        """Returns the columns of all `count` elements."""
        return jax.tree.unflatten(self._structure, [builder.column() for builder in self._leaves])


class _ColumnBuilder:
    """A builder of one column; `values` are its rows so far."""

    def __init__(self, count: int, rows: BatchRows | None) -> None:
        self._count = count
        self._rows = rows
        # Where the next value belongs if all so far were made in their places: nothing is written to `_stacked` then.
        self._next_address: int | None = None
        self._stacked: NDArray[Any] | None = None
        self.values: list[Any] = []

    @property
    def is_in_place(self) -> bool:
        return self._next_address is not None

    def add(self, value: Any) -> None:
        row, is_array = len(self.values), isinstance(value, np.ndarray)
        if row == 0 and is_array:
            self._start(value)
        stacked = self._stacked
        if stacked is not None and not (is_array and (value.shape, value.dtype) == (stacked.shape[1:], stacked.dtype)):
            # Copied out: a view would keep memory for rows that never come.
            self.values = [view.copy() for view in self.values]
            self._stacked = self._next_address = stacked = None
        if stacked is None:
            self.values.append(value.copy() if is_array else value)
            return
        if self._next_address is None:
            stacked[row] = value
        elif is_at(value, self._next_address):
            self._next_address += value.nbytes
        else:
            self._next_address = None
            self._stacked = stacked = _copy_of_rows(stacked, row)
            self.values = [stacked[i, ...] for i in range(row)]
            stacked[row] = value
        self.values.append(stacked[row, ...])  # An array even if it has no axes.

    def _start(self, first: NDArray[Any]) -> None:
        """Chooses the memory of the column by its first value."""
        block = None if self._rows is None else self._rows.starting_with(first)
        self._next_address = None if block is None else address_of(block)
        self._stacked = np.empty((self._count, *first.shape), first.dtype) if block is None else block

    def column(self) -> Column:
        return column(self.values) if self._stacked is None else self._stacked


def _copy_of_rows(stacked: NDArray[Any], count: int) -> NDArray[Any]:
    """Returns memory of the same shape, of which the first rows are copied."""
    result = np.empty_like(stacked)
    result[:count] = stacked[:count]
    return result


def concatenate(parts: Sequence[Columns]) -> Columns:
    """Returns the elements of several columns, one after another."""

    def join(*columns: Any) -> Any:
        # One ragged part, or parts of different shapes, make the whole column ragged.
        shapes = {None if isinstance(c, Ragged) else c.shape[1:] for c in columns}
        if len(shapes) == 1 and None not in shapes:
            return np.concatenate(columns)
        return Ragged(_object_array([row for c in columns for row in (c.values if isinstance(c, Ragged) else c)]))

    return parts[0] if len(parts) == 1 else jax.tree.map(join, *parts)


def from_element(item: PyTree) -> Columns:
    """Returns one element as columns of one row."""
    return stack([normalize(item)])


def from_arrays(value: PyTree) -> Columns:
    """Returns an array, or a nested structure of arrays, whose first axis becomes the elements."""
    return jax.tree.map(_column_of_rows, normalize(value))


def _column_of_rows(leaf: PyTree) -> Any:
    kind = kind_of(leaf)
    return as_array(leaf) if kind is None else column(kind.rows(leaf))


def _as_read_only_array(array: ArrayLike) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    # A view has a flag of its own: the user's array stays writeable.
    view = array.view()
    view.flags.writeable = False
    return view


def _object_array(values: Sequence[Any]) -> NDArray[np.object_]:
    result = np.empty(len(values), TEXT)
    # np.array(values, object) would make an array of two axes of rows of equal length.
    for i, value in enumerate(values):
        result[i] = value
    return result
