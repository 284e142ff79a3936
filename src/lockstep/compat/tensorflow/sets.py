"""tf.sets: the last dimension as sets of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._error_kinds import ArgumentTypeError
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import dispatch as _dispatch
from lockstep.compat.tensorflow._ops.indexing import read_values as _read_values
from lockstep.compat.tensorflow._sparse_tensor import SparseTensor as _SparseTensor
from lockstep.compat.tensorflow._sparse_tensor import check_indices as _check_indices
from lockstep.compat.tensorflow._tensor import as_host as _as_host
from lockstep.errors import ArgumentError

__all__ = ["difference", "intersection", "size", "union"]

# A group of the first dimensions, and the values in it.
_Groups = dict[tuple[int, ...], set[Any]]
_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "object")


def intersection(a: Any, b: Any, validate_indices: bool = True) -> Any:
    """Returns the values that both sets have, in order, as a SparseTensor.

    Args:
        a: Integers or text of at least two dimensions, or a SparseTensor of them. The last dimension is a set.
        b: The same, with the same sizes but for the last.
        validate_indices: Whether a SparseTensor's places must be in order and inside of its shape.

    Raises:
        ArgumentError: If shapes do not go together.

    Source: tf.sets.intersection.
    """
    return _combine(a, b, set.intersection, validate_indices)


def difference(a: Any, b: Any, aminusb: bool = True, validate_indices: bool = True) -> Any:
    """Returns the values of `a` that `b` has not, or with `aminusb=False` those of `b`; else as `intersection`.

    Source: tf.sets.difference.
    """
    first, second = (a, b) if aminusb else (b, a)
    return _combine(first, second, set.difference, validate_indices)


def union(a: Any, b: Any, validate_indices: bool = True) -> Any:
    """Returns the values that one or both sets have; else as `intersection`. Source: tf.sets.union."""
    return _combine(a, b, set.union, validate_indices)


def size(a: Any, validate_indices: bool = True) -> Tensor:
    """Returns how many different values each set of a SparseTensor has, as int32. Source: tf.sets.size."""
    if not isinstance(a, _SparseTensor):
        raise ArgumentTypeError(f"tf.sets.size takes a SparseTensor. Received: {a!r}. Use tf.sparse.from_dense.")
    shape, groups, _ = _groups_of(a, validate_indices)
    counts = np.zeros(shape, np.int32)
    for group, values in groups.items():
        counts[group] = len(values)
    return _as_host(counts)


def _groups_of(value: Any, validate: bool) -> tuple[tuple[int, ...], _Groups, np.dtype[Any]]:
    """Returns the sizes of the first dimensions, the set of each group, and the values' type."""
    groups: _Groups = {}
    if isinstance(value, _SparseTensor):
        if validate:
            _check_indices(value)
        shape = tuple(np.asarray(value.dense_shape).tolist())
        values = _read_values("tf.sets", value.values)
        for place, item in zip(np.asarray(value.indices).tolist(), values.tolist(), strict=True):
            groups.setdefault(tuple(place[:-1]), set()).add(item)
    else:
        values = _read_values("tf.sets", _dispatch.pick(value)[1])
        shape = values.shape
        for group in np.ndindex(shape[:-1]):
            groups[group] = set(values[group].tolist())
    if len(shape) < 2:
        raise ArgumentError(f"Sets are of at least two dimensions, the last of which are the sets. Received: {shape}.")
    if values.dtype.name not in _DTYPES:
        raise ArgumentTypeError(f"Sets are of integers or text. Received: {values.dtype}.")
    return shape[:-1], groups, values.dtype


def _combine(a: Any, b: Any, how: Callable[[set[Any], set[Any]], set[Any]], validate: bool) -> Any:
    (shape, first, dtype), (other, second, other_dtype) = _groups_of(a, validate), _groups_of(b, validate)
    if shape != other:
        raise ArgumentError(
            f"Both must have the same sizes but for the last dimension. Received: {list(shape)} and {list(other)}."
        )
    if dtype != other_dtype:
        raise ArgumentTypeError(f"Both must be of one type. Received: {dtype} and {other_dtype}.")
    places: list[tuple[int, ...]] = []
    values: list[Any] = []
    longest = 0
    for group in sorted({*first, *second}):
        found = sorted(how(first.get(group, set()), second.get(group, set())))
        longest = max(longest, len(found))
        places += [(*group, number) for number in range(len(found))]
        values += found
    index = np.array(places, np.int64).reshape(-1, len(shape) + 1)
    flat = np.empty(len(values), dtype)
    flat[:] = values
    return _SparseTensor(index, _as_host(flat), [*shape, longest])


__getattr__ = _getter(__name__)
