"""Sums and the like over segments of the first dimension, and confusion matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.make import describe
from lockstep.compat.tensorflow._types import DTypeLike, SizeLike

__all__ = ["confusion_matrix", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum"]
__all__ += ["unsorted_segment_max", "unsorted_segment_mean", "unsorted_segment_min", "unsorted_segment_prod"]
__all__ += ["unsorted_segment_sqrt_n", "unsorted_segment_sum"]

# Values of empty segments in TensorFlow's unsorted operations.
_START: dict[str, Any] = {
    "sum": lambda t: 0,
    "prod": lambda t: 1,
    "max": lambda t: _limits(t).min,
    "min": lambda t: _limits(t).max,
}
_AT: dict[str, Any] = {"sum": np.add.at, "prod": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at}


def _limits(dtype: DTypeLike) -> Any:
    return np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else jnp.finfo(dtype)


def _reduce_segments(how: str, data: Tensor, ids: Tensor, count: int) -> Any:
    """Reduces the elements of each segment."""
    xp, x, i = dispatch.pick(data, ids)
    i, rest = i.reshape(-1), x.shape[len(i.shape) :]
    x = x.reshape(-1, *rest)
    start = _START[how](x.dtype)
    if xp is dispatch.DEVICE:
        # TensorFlow drops negative numbers, JAX would count them from the end: they go to a row that is cut off.
        target = jnp.full((count + 1, *rest), start, x.dtype).at[jnp.where(i < 0, count, i)]
        reduced: Any = {"sum": target.add, "prod": target.multiply, "max": target.max, "min": target.min}[how](x)
        return reduced[:count]
    result = np.full((count, *rest), start, x.dtype)
    _AT[how](result, i[i >= 0], x[i >= 0])
    return dispatch.give(xp, result)


def _sorted_reduction(how: str, verb: str) -> Callable[..., Any]:
    def reduce(data: Tensor, segment_ids: Tensor, name: str | None = None) -> Any:
        numbers = dispatch.pick(segment_ids)[1]
        count = dispatch.to_static(numbers[-1]) + 1
        reduced = _reduce_segments(how, data, segment_ids, count)
        if how in ("sum", "prod"):
            return reduced
        xp, x = dispatch.pick(reduced)
        # The sorted operations give 0 for an empty segment, unlike the unsorted ones.
        is_filled = np.isin(np.arange(count), np.asarray(numbers)).reshape(-1, *(1,) * (x.ndim - 1))
        return dispatch.give(xp, xp.where(is_filled, x, xp.zeros((), x.dtype)))

    summary = f"{verb} of each segment; the numbers, sorted, must be known"
    return describe(reduce, f"tf.math.segment_{how}", summary)


segment_sum = _sorted_reduction("sum", "Adds the slices")
segment_prod = _sorted_reduction("prod", "Multiplies the slices")
segment_max = _sorted_reduction("max", "Takes the maximum")
segment_min = _sorted_reduction("min", "Takes the minimum")


def segment_mean(data: Tensor, segment_ids: Tensor, name: str | None = None) -> Tensor:
    """Takes the mean of each segment. Source: tf.math.segment_mean."""
    return unsorted_segment_mean(data, segment_ids, dispatch.to_static(dispatch.pick(segment_ids)[1][-1]) + 1)


def _unsorted_reduction(how: str, verb: str) -> Callable[..., Any]:
    def reduce(data: Tensor, segment_ids: Tensor, num_segments: SizeLike, name: str | None = None) -> Any:
        return _reduce_segments(how, data, segment_ids, dispatch.to_static(num_segments))

    return describe(reduce, f"tf.math.unsorted_segment_{how}", f"{verb} of each segment, in any order")


unsorted_segment_sum = _unsorted_reduction("sum", "Adds the slices")
unsorted_segment_prod = _unsorted_reduction("prod", "Multiplies the slices")
unsorted_segment_max = _unsorted_reduction("max", "Takes the maximum")
unsorted_segment_min = _unsorted_reduction("min", "Takes the minimum")


def _divide_sums(data: Tensor, segment_ids: Tensor, num_segments: SizeLike, power: float) -> Any:
    xp, x, i = dispatch.pick(data, segment_ids)
    total = dispatch.to_array(xp, unsorted_segment_sum(data, segment_ids, num_segments))
    ones = xp.ones(i.shape, x.dtype)
    count = dispatch.to_array(xp, unsorted_segment_sum(dispatch.give(xp, ones), segment_ids, num_segments))
    # An empty segment is 0, not 0 / 0.
    count = xp.maximum(count, 1).reshape(-1, *(1,) * (total.ndim - 1))
    return dispatch.give(xp, (total / count**power).astype(total.dtype))


def unsorted_segment_mean(data: Tensor, segment_ids: Tensor, num_segments: SizeLike, name: str | None = None) -> Tensor:
    """Takes the mean of each segment, in any order. Source: tf.math.unsorted_segment_mean."""
    return _divide_sums(data, segment_ids, num_segments, 1)


def unsorted_segment_sqrt_n(
    data: Tensor, segment_ids: Tensor, num_segments: SizeLike, name: str | None = None
) -> Tensor:
    """Divides the sum of each segment by the root of its size. Source: tf.math.unsorted_segment_sqrt_n."""
    return _divide_sums(data, segment_ids, num_segments, 0.5)


def confusion_matrix(
    labels: Tensor,
    predictions: Tensor,
    num_classes: SizeLike = None,
    weights: Tensor = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """Counts pairs: row is the label, column the prediction; or adds up their weights.

    Source: tf.math.confusion_matrix.
    """
    xp, y, p, w = dispatch.pick(labels, predictions, weights)
    size = dispatch.to_static(num_classes) if num_classes is not None else int(max(y.max(), p.max())) + 1
    wanted = dispatch.usable_dtype(xp, dtype)
    # Without weights each pair counts as one.
    values = xp.ones(y.shape, wanted) if w is None else w.astype(wanted)
    at = (y.reshape(-1), p.reshape(-1))
    if xp is dispatch.DEVICE:
        return jnp.zeros((size, size), wanted).at[at].add(values.reshape(-1))
    counts = np.zeros((size, size), wanted)
    np.add.at(counts, at, values.reshape(-1))
    return dispatch.give(xp, counts)


named.record_names(globals())
