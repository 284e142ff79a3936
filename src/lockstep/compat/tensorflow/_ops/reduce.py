"""Functions that reduce dimensions, and those that run along one."""

# ruff: noqa: D417

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer
from scipy import special as scipy

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, int64
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.arrays import ensure_shape
from lockstep.compat.tensorflow._ops.create import cast
from lockstep.compat.tensorflow._ops.elementwise import add_n
from lockstep.compat.tensorflow._ops.make import describe
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import AxisLike, DTypeLike, Library, ShapeLike, SizeLike

__all__ = ["accumulate_n", "argmax", "argmin", "bincount", "count_nonzero", "cumprod", "cumsum", "cumulative_logsumexp"]
__all__ += ["reduce_all", "reduce_any", "reduce_euclidean_norm", "reduce_logsumexp", "reduce_max", "reduce_mean"]
__all__ += ["reduce_min", "reduce_prod", "reduce_std", "reduce_sum", "reduce_variance", "zero_fraction"]


def _keep_integer_type(xp: Library, x: Tensor, result: Tensor) -> Any:
    """Returns sums and products of integers in the type of the elements."""
    # numpy sums int32 in int64, JAX uint8 in uint32. TensorFlow stays in the type, and wraps around.
    keep = xp is not dispatch.SYMBOLIC and np.issubdtype(x.dtype, np.integer)
    return result.astype(x.dtype) if keep else result


def reduce_sum(input_tensor: Tensor, axis: AxisLike = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Adds elements, all or along the axes. Source: tf.reduce_sum."""
    xp, x = dispatch.pick(input_tensor)
    return dispatch.give(xp, _keep_integer_type(xp, x, xp.sum(x, axis=dispatch.to_static(axis), keepdims=keepdims)))


def reduce_prod(input_tensor: Tensor, axis: AxisLike = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Multiplies elements, all or along the axes. Source: tf.reduce_prod."""
    xp, x = dispatch.pick(input_tensor)
    return dispatch.give(xp, _keep_integer_type(xp, x, xp.prod(x, axis=dispatch.to_static(axis), keepdims=keepdims)))


def _reduction(function: str, tf_name: str, summary: str, floats: bool = False) -> Callable[..., Any]:
    """Returns a function that reduces all elements, or the axes, by a function that all three libraries have."""

    def reduce(input_tensor: Tensor, axis: AxisLike = None, keepdims: bool = False, name: str | None = None) -> Any:
        xp, x = dispatch.pick(input_tensor)
        x = dispatch.to_floats(xp, x) if floats else x
        return dispatch.give(xp, getattr(xp, function)(x, axis=dispatch.to_static(axis), keepdims=keepdims))

    return describe(reduce, tf_name, summary)


# Means of integers are float32: TensorFlow would round them.
reduce_mean = _reduction("mean", "tf.reduce_mean", "Takes means, of all or along the axes", floats=True)
reduce_max = _reduction("max", "tf.reduce_max", "Returns the greatest elements, of all or along the axes")
reduce_min = _reduction("min", "tf.reduce_min", "Returns the least elements, of all or along the axes")
reduce_all = _reduction("all", "tf.reduce_all", "Returns whether all are true, of all or along the axes")
reduce_any = _reduction("any", "tf.reduce_any", "Returns whether any is true, of all or along the axes")
# Of the whole, not of a sample: TensorFlow divides by n, as numpy does.
reduce_std = _reduction("std", "tf.math.reduce_std", "Takes standard deviations of the whole", floats=True)
reduce_variance = _reduction("var", "tf.math.reduce_variance", "Takes variances of the whole", floats=True)


def reduce_logsumexp(
    input_tensor: Tensor, axis: AxisLike = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Computes log(sum(exp(x))) without overflow. Source: tf.reduce_logsumexp."""
    xp, x = dispatch.pick(input_tensor)
    # numpy has no logsumexp.
    function: Any = {dispatch.HOST: scipy.logsumexp, dispatch.DEVICE: jax.nn.logsumexp}.get(xp, keras.ops.logsumexp)
    return dispatch.give(xp, function(dispatch.to_floats(xp, x), axis=dispatch.to_static(axis), keepdims=keepdims))


def reduce_euclidean_norm(
    input_tensor: Tensor, axis: AxisLike = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Computes square roots of sums of squares. Source: tf.math.reduce_euclidean_norm."""
    xp, x = dispatch.pick(input_tensor)
    x = dispatch.to_floats(xp, x)
    return dispatch.give(xp, xp.sqrt(xp.sum(xp.square(xp.abs(x)), axis=dispatch.to_static(axis), keepdims=keepdims)))


def accumulate_n(
    inputs: Tensor, shape: ShapeLike = None, tensor_dtype: DTypeLike = None, name: str | None = None
) -> Tensor:
    """Adds the tensors of a list; checks their shape and type if given. Source: tf.math.accumulate_n."""
    total = ensure_shape(add_n(inputs), shape)
    return total if tensor_dtype is None else cast(total, tensor_dtype)


def count_nonzero(
    input: Tensor, axis: AxisLike = None, keepdims: bool = False, dtype: DTypeLike = int64, name: str | None = None
) -> Tensor:
    """Counts the elements that are not zero; of text: not empty. Source: tf.math.count_nonzero."""
    xp, x = dispatch.pick(input)
    # Text counts where it is not empty.
    hits = x != (b"" if x.dtype == object else 0)
    counted = xp.sum(
        xp.cast(hits, "int32") if xp is dispatch.SYMBOLIC else hits.astype("int32"),
        axis=dispatch.to_static(axis),
        keepdims=keepdims,
    )
    return (
        as_host(np.asarray(counted, as_dtype(dtype).dtype))
        if xp is dispatch.HOST
        else counted.astype(dispatch.usable_dtype(xp, dtype))
    )


def zero_fraction(value: Tensor, name: str | None = None) -> Tensor:
    """Returns the share of elements that are zero. Source: tf.math.zero_fraction."""
    xp, x = dispatch.pick(value)
    return dispatch.give(xp, xp.mean((x == 0).astype("float32")))


def argmax(input: Tensor, axis: AxisLike = None, output_type: DTypeLike = int64, name: str | None = None) -> Tensor:
    """Returns the index of the greatest element along `axis` (0). Source: tf.argmax."""
    return _arg("argmax", input, axis, output_type)


def argmin(input: Tensor, axis: AxisLike = None, output_type: DTypeLike = int64, name: str | None = None) -> Tensor:
    """Returns the index of the least element along `axis` (0). Source: tf.argmin."""
    return _arg("argmin", input, axis, output_type)


def _arg(function: str, value: Tensor, axis: AxisLike, dtype: DTypeLike) -> Any:
    xp, x = dispatch.pick(value)
    # TensorFlow's default is axis 0, numpy's all elements.
    index = getattr(xp, function)(x, axis=0 if axis is None else dispatch.to_static(axis))
    if xp is dispatch.HOST:
        return as_host(np.asarray(index, as_dtype(dtype).dtype))
    return keras.ops.cast(index, as_dtype(dispatch.usable_dtype(dispatch.DEVICE, dtype)).name)


def cumsum(
    x: Tensor, axis: AxisLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Adds up along an axis; `exclusive` leaves the element itself out, `reverse` goes from the end.

    Source: tf.cumsum.
    """
    return _scan("cumsum", x, axis, exclusive, reverse)


def cumprod(
    x: Tensor, axis: AxisLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Multiplies up along an axis; arguments as of `cumsum`. Source: tf.math.cumprod."""
    return _scan("cumprod", x, axis, exclusive, reverse)


def _scan(function: str, value: Tensor, axis: AxisLike, exclusive: bool, reverse: bool) -> Any:
    xp, x = dispatch.pick(value)
    axis = dispatch.to_static(axis)
    x = xp.flip(x, axis) if reverse else x
    if exclusive:
        # Exclusive: shifted by one, with the neutral element in front.
        first = xp.full_like(xp.take(x, np.arange(1), axis=axis), 0 if function == "cumsum" else 1)
        x = xp.concatenate([first, xp.take(x, np.arange(x.shape[axis] - 1), axis=axis)], axis=axis)
    done = _keep_integer_type(xp, x, getattr(xp, function)(x, axis=axis))
    return dispatch.give(xp, xp.flip(done, axis) if reverse else done)


def cumulative_logsumexp(
    x: Tensor, axis: AxisLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Computes log(cumsum(exp(x))) without overflow. Source: tf.math.cumulative_logsumexp."""
    xp, x = dispatch.pick(x)
    axis = dispatch.to_static(axis)
    # exp of a difference to the maximum cannot overflow.
    peak = xp.max(x, axis=axis, keepdims=True)
    total = _scan("cumsum", dispatch.give(xp, xp.exp(x - peak)), axis, exclusive, reverse)
    with np.errstate(divide="ignore"):
        return dispatch.give(xp, xp.log(dispatch.to_array(xp, total)) + peak)


def bincount(
    arr: Tensor,
    weights: Tensor = None,
    minlength: SizeLike = None,
    maxlength: SizeLike = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
) -> Tensor:
    """Counts how often each integer from 0 up occurs, or adds its weights up.

    Args:
        arr: Integers. For arrays of JAX `minlength` or `maxlength` must give the number of counts.
        maxlength: Greater integers are left out.
        axis: `None` counts all elements together, -1 those of each row.
        binary_output: Gives 1 for each integer that occurs.

    Source: tf.math.bincount.
    """
    xp, x, w = dispatch.pick(arr, weights)
    # One count for each row: all rows have the bins of the greatest.
    if axis == -1 and len(x.shape) > 1:
        size = _bins(x, minlength, maxlength)
        rows = [
            bincount(r, None if w is None else w[i], size, size, dtype, binary_output=binary_output)
            for i, r in enumerate(x)
        ]
        return dispatch.give(xp, xp.stack([dispatch.to_array(xp, r) for r in rows]))
    size = _bins(x, minlength, maxlength)
    # A comparison with all bins serves counts, weights and flags alike, and has a static shape.
    hot = xp.reshape(x, (-1, 1)) == xp.arange(size)
    values = hot if w is None else xp.where(hot, xp.reshape(w, (-1, 1)), 0)
    counts = xp.any(hot, axis=0) if binary_output else xp.sum(values, axis=0)
    return dispatch.give(xp, counts.astype(dispatch.usable_dtype(xp, dtype)) if w is None else counts)


def _bins(x: Tensor, minlength: SizeLike, maxlength: SizeLike) -> int:
    if isinstance(x, Tracer):
        return dispatch.to_static(maxlength if maxlength is not None else minlength)
    # Known values decide the number of bins, which compiled code cannot.
    size = int(jnp.max(x)) + 1 if isinstance(x, jax.Array) else int(x.max(initial=-1)) + 1
    size = max(size, dispatch.to_static(minlength) or 0)
    return size if maxlength is None else min(size, dispatch.to_static(maxlength))


named.record_names(globals())
