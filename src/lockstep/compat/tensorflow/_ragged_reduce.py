"""Sums and the like of ragged tensors, along their rows and across them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep.compat.tensorflow._ops import arrays, create, elementwise, reduce, segments
from lockstep.compat.tensorflow._ragged_tensor import RaggedTensor
from lockstep.errors import ArgumentError, UnsupportedError

_SEGMENTS = {
    "reduce_sum": segments.unsorted_segment_sum,
    "reduce_prod": segments.unsorted_segment_prod,
    "reduce_max": segments.unsorted_segment_max,
    "reduce_min": segments.unsorted_segment_min,
}


def axis_of(ragged: RaggedTensor, axis: Any) -> int:
    """Returns an axis as a number from 0 on; raises `ArgumentError` if there is no such axis."""
    number = int(axis)
    if not -ragged.rank <= number < ragged.rank:
        raise ArgumentError(f"The axis must be in [{-ragged.rank}, {ragged.rank}). Received: {number}.")
    return number % ragged.rank


def reduce_ragged(name: str, function: Callable[..., Any], ragged: RaggedTensor, axis: Any, keepdims: bool) -> Any:
    """Returns what `tf.reduce_...` gives for a ragged tensor: along its rows, across them, or of all elements."""
    if axis is None:
        return function(ragged.flat_values, None, keepdims)
    if np.ndim(axis):
        # From the last axis on, so that numbers of those before stay what they are. Means are sums by counts.
        listed = sorted({axis_of(ragged, a) for a in np.ravel(axis)}, reverse=True)
        if name == "reduce_mean" and len(listed) > 1:
            ones = ragged.with_flat_values(create.ones_like(ragged.flat_values))
            total, count = (reduce_ragged("reduce_sum", reduce.reduce_sum, r, listed, keepdims) for r in (ragged, ones))
            with np.errstate(invalid="ignore", divide="ignore"):
                return elementwise.divide(total, count)
        result: Any = ragged
        for one in listed:
            if isinstance(result, RaggedTensor):
                result = reduce_ragged(name, function, result, one, keepdims)
            else:
                result = function(result, one, keepdims)
        return result
    one = axis_of(ragged, axis)
    if one > 1:
        inner: Any = ragged.values
        is_ragged = isinstance(inner, RaggedTensor)
        reduced = (
            reduce_ragged(name, function, inner, one - 1, keepdims) if is_ragged else function(inner, one - 1, keepdims)
        )
        return ragged.with_values(reduced)
    result = _reduce_rows(name, ragged, one)
    if not keepdims:
        return result
    if isinstance(result, RaggedTensor):
        return RaggedTensor.from_uniform_row_length(result, 1)
    return arrays.expand_dims(result, one)


def _reduce_rows(name: str, ragged: RaggedTensor, axis: int) -> Any:
    """Reduces the rows to one each (axis 1), or all rows to one (axis 0)."""
    values: Any = ragged.values
    splits = ragged.row_splits.numpy()
    lengths = np.diff(splits)
    if isinstance(values, RaggedTensor):
        # The n-th elements of inner rows meet: their places, and the values sorted by them.
        rows = np.repeat(np.arange(len(lengths)), lengths) if axis == 1 else _places(splits)
        inner = values.row_splits.numpy()
        place = np.stack([np.repeat(rows, np.diff(inner)), _places(inner)], axis=1)
        unique, group = np.unique(place, axis=0, return_inverse=True)
        reduced = _by_segment(name, values.values, group.reshape(-1), len(unique))
        count = len(lengths) if axis == 1 else int(lengths.max(initial=0))
        return RaggedTensor.from_value_rowids(reduced, unique[:, 0], count)
    group = np.repeat(np.arange(len(lengths)), lengths) if axis == 1 else _places(splits)
    return _by_segment(name, values, group, len(lengths) if axis == 1 else int(lengths.max(initial=0)))


def _places(splits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.arange(splits[-1]) - np.repeat(splits[:-1], np.diff(splits))


def _by_segment(name: str, values: Any, group: np.ndarray[Any, Any], count: int) -> Any:
    if isinstance(values, RaggedTensor):
        raise UnsupportedError("Ragged tensors are reduced along one of their two outer dimensions, or the last ones.")
    if name in _SEGMENTS:
        return _SEGMENTS[name](values, group, count)
    if name in ("reduce_any", "reduce_all"):
        numbers = create.cast(values, "int32")
        found = segments.unsorted_segment_max if name == "reduce_any" else segments.unsorted_segment_min
        # The value of an empty row: false of any, true of all.
        return elementwise.greater(found(numbers, group, count), 0)
    # A row of nothing has no mean: 0 / 0, as TensorFlow computes it.
    size = np.bincount(group, minlength=count)
    total = segments.unsorted_segment_sum(create.cast(values, "float32"), group, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return elementwise.divide(total, size.reshape(-1, *(1,) * (np.ndim(total) - 1)).astype(np.float32))
