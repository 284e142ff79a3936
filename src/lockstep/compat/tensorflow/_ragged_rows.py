"""Rows and columns of ragged tensors: which values they have, and where each stands.

The functions make tensors of the class that they are given, whose module uses this one.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from lockstep.errors import ArgumentError


def count_rows(values: Any) -> int:
    """Returns the size of the first dimension, of ragged tensors and others."""
    return len(values.splits) - 1 if hasattr(values, "splits") else int(np.shape(values)[0])


def positions_of(splits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns where in its row each value stands."""
    lengths = np.diff(splits)
    return np.arange(splits[-1]) - np.repeat(splits[:-1], lengths)


def indices_of(ragged: Any) -> np.ndarray[Any, Any]:
    """Returns the place of each element in the smallest tensor that holds them all."""
    values: Any = ragged.values
    if isinstance(values, type(ragged)):
        inner = indices_of(values)
    else:
        inner = np.stack(np.unravel_index(np.arange(values.size), tuple(values.shape)), axis=1)
    row = np.asarray(ragged.value_rowids())[inner[:, 0]]
    return np.column_stack([row, positions_of(ragged.splits)[inner[:, 0]], inner[:, 1:]]).astype(np.int64)


def take_rows(ragged: Any, rows: np.ndarray[Any, Any]) -> Any:
    """Returns the rows of these numbers, in this order."""
    splits = ragged.splits
    lengths = np.diff(splits)[rows]
    new = np.concatenate([[0], np.cumsum(lengths)])
    where = np.repeat(splits[rows] - new[:-1], lengths) + np.arange(new[-1])
    values = ragged.values
    taken = take_rows(values, where) if isinstance(values, type(ragged)) else values[where]
    return type(ragged)(taken, new, ragged.uniform_row_length)


def take_columns(ragged: Any, keys: list[Any]) -> Any:
    """Returns the rows with an index of their own elements applied to each."""
    first, rest = keys[0], keys[1:]
    if first is None:
        values = (
            type(ragged)(ragged.values, np.arange(count_rows(ragged.values) + 1), 1)
            if isinstance(ragged.values, type(ragged))
            else ragged.values[:, None]
        )
        return take_columns(ragged.with_values(values), [slice(None), *rest]) if rest else ragged.with_values(values)
    if isinstance(first, slice):
        parts = [np.arange(a, b)[first] for a, b in zip(ragged.splits[:-1], ragged.splits[1:], strict=True)]
        where = np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)
        values = ragged.values
        taken = take_rows(values, where) if isinstance(values, type(ragged)) else values[where]
        result = type(ragged)(taken, np.concatenate([[0], np.cumsum([len(p) for p in parts])]))
        if not rest:
            return result
        inner = taken[(slice(None), *rest)] if not isinstance(taken, type(ragged)) else take_columns(taken, rest)
        return type(ragged)(inner, result.splits)
    if ragged.uniform_row_length is None:
        raise ArgumentError("Rows that differ in length have no common element. Use a slice, such as x[:, :1].")
    where = ragged.splits[:-1] + operator.index(first) % ragged.uniform_row_length
    values = ragged.values
    taken = take_rows(values, where) if isinstance(values, type(ragged)) else values[where]
    return taken[(slice(None), *rest)] if rest else taken
