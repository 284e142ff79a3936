"""tf.ragged: rows of different lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow import _ragged_ops
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import create as _create
from lockstep.compat.tensorflow._ragged_tensor import RaggedTensor as _RaggedTensor
from lockstep.compat.tensorflow._tensor import as_host as _as_host
from lockstep.compat.tensorflow._tensor import constant_array as _constant_array
from lockstep.compat.tensorflow._types import Argument, DTypeLike, ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["boolean_mask", "constant", "map_flat_values", "range", "row_splits_to_segment_ids"]
__all__ += ["segment_ids_to_row_splits", "stack"]


def constant(
    pylist: Any,
    dtype: DTypeLike = None,
    ragged_rank: int | None = None,
    inner_shape: ShapeLike = None,
    name: str | None = None,
    row_splits_dtype: DTypeLike = "int64",
) -> Any:
    """Makes a ragged tensor of nested lists; of a list without lists in it a tensor.

    `ragged_rank` is how many dimensions have rows of different lengths, by default all but the last; `inner_shape` the
    shape of what lies in the innermost rows.

    Raises:
        ArgumentError: If values stand at different depths.

    Source: tf.ragged.constant.
    """
    depth = _depth_of(pylist)
    if ragged_rank is None:
        inner = len(tuple(inner_shape)) if inner_shape is not None else 0
        ragged_rank = max(depth - 1 - inner, 0)
    if ragged_rank == 0:
        return _create.constant(pylist, dtype, inner_shape if pylist == [] else None)
    lengths: list[list[int]] = []
    rows: Any = pylist
    for _ in np.arange(ragged_rank):
        if any(not isinstance(row, (list, tuple, np.ndarray)) for row in rows):
            raise ArgumentError(f"All values must stand at one depth of lists. Received: {pylist!r:.200}.")
        lengths.append([len(row) for row in rows])
        rows = [item for row in rows for item in row]
    if depth - 1 <= ragged_rank and any(isinstance(item, (list, tuple)) for item in rows):
        raise ArgumentError(f"All values must stand at one depth of lists. Received: {pylist!r:.200}.")
    shape = (0, *inner_shape) if not rows and inner_shape is not None else None
    flat = _create.constant(rows, dtype, shape) if rows else _create.constant(rows, dtype or "float32", shape)
    return _RaggedTensor.from_nested_row_lengths(flat, lengths)


def _depth_of(value: Any) -> int:
    """Returns how many lists are around the values: of the deepest, for an empty list tells nothing."""
    if isinstance(value, np.ndarray):
        return value.ndim if value.dtype != object else 1 + max(map(_depth_of, value), default=0)
    return 1 + max(map(_depth_of, value), default=0) if isinstance(value, (list, tuple)) else 0


def range(
    starts: Tensor,
    limits: Tensor = None,
    deltas: Tensor = 1,
    dtype: DTypeLike = None,
    name: str | None = None,
    row_splits_dtype: DTypeLike = "int64",
) -> Any:
    """Makes rows that count from `starts` to below `limits`, in steps of `deltas`. Source: tf.ragged.range."""
    if limits is None:
        starts, limits = 0, starts
    rows = np.broadcast_arrays(*(np.atleast_1d(_constant_array(v)) for v in (starts, limits, deltas)))
    counted = [np.arange(a, b, step) for a, b, step in zip(*rows, strict=True)]
    values = np.concatenate([*counted, rows[0][:0]]).astype(rows[0].dtype)
    flat = _as_host(values) if dtype is None else _create.cast(values, dtype)
    return _RaggedTensor.from_row_lengths(flat, [len(row) for row in counted])


def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Returns tensors, of any lengths, as rows of one ragged tensor. Source: tf.ragged.stack."""
    return _ragged_ops.stack_ragged(values, axis)


def boolean_mask(data: Any, mask: Any, name: str | None = None) -> Any:
    """Returns what is true in `mask`, in rows; the last dimension of the mask becomes ragged.

    Source: tf.ragged.boolean_mask.
    """
    if not isinstance(mask, _RaggedTensor):
        chosen = _constant_array(mask)
        if chosen.ndim == 1:
            rows = np.flatnonzero(chosen)
            is_ragged = isinstance(data, _RaggedTensor)
            return _ragged_ops.take_rows(data, rows) if is_ragged else _as_host(_constant_array(data)[rows])
        mask = _RaggedTensor.from_tensor(chosen, ragged_rank=chosen.ndim - 1)
    ragged = data if isinstance(data, _RaggedTensor) else _RaggedTensor.from_tensor(data, ragged_rank=mask.ragged_rank)
    inner = boolean_mask(ragged.values, mask.values)
    if isinstance(mask.values, _RaggedTensor):
        return ragged.with_values(inner)
    kept = np.concatenate([[0], np.cumsum(np.asarray(mask.values))])
    return _RaggedTensor(inner, kept[mask.row_splits.numpy()])


def map_flat_values(op: Callable[..., Any], *args: Argument, **kwargs: Argument) -> Any:
    """Applies a function to the flat values of ragged tensors, and puts its result into their rows.

    Source: tf.ragged.map_flat_values.
    """
    if not any(isinstance(a, _RaggedTensor) for a in (*args, *kwargs.values())):
        return op(*args, **kwargs)
    return _ragged_ops.map_values(op, *args, **kwargs)


def row_splits_to_segment_ids(splits: Tensor, name: str | None = None, out_type: DTypeLike = None) -> Any:
    """Returns the row of each value. Source: tf.ragged.row_splits_to_segment_ids."""
    lengths = np.diff(_constant_array(splits))
    return _as_host(np.repeat(np.arange(len(lengths)), lengths))


def segment_ids_to_row_splits(
    segment_ids: Tensor, num_segments: Any = None, out_type: DTypeLike = None, name: str | None = None
) -> Any:
    """Returns where each row begins, and the last one ends. Source: tf.ragged.segment_ids_to_row_splits."""
    ids = _constant_array(segment_ids)
    rows = int(num_segments) if num_segments is not None else int(ids.max(initial=-1)) + 1
    return _as_host(np.concatenate([[0], np.cumsum(np.bincount(ids, minlength=rows))]))


__getattr__ = _getter(__name__)
