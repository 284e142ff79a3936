"""Functions that make tensors."""

# ruff: noqa: D417

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras
import numpy as np

from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._tensor import as_host, text
from lockstep.errors import ArgumentError

__all__ = [
    "bitcast",
    "cast",
    "constant",
    "convert_to_tensor",
    "eye",
    "fill",
    "identity",
    "identity_n",
    "linspace",
    "one_hot",
    "ones",
    "ones_like",
    "range",
    "sequence_mask",
    "stop_gradient",
    "zeros",
    "zeros_like",
]


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Any:
    """Makes a tensor of Python values or an array.

    Args:
        value: Numbers, text, lists of them, or an array. Python's are taken as float32, int32, bool or text.
        dtype: Type of the elements; what is not given is read from `value`. 64 bits stay until it is computed with.
        shape: Its shape; a single value is repeated to fill it.

    Source: tf.constant.
    """
    tensor = convert_to_tensor(value, dtype)
    if shape is None:
        return tensor
    xp = dispatch.library(tensor)
    sizes = dispatch.static(shape)
    made = xp.broadcast_to if tensor.size == 1 else xp.reshape
    return as_host(made(np.asarray(tensor), sizes)) if xp is dispatch.HOST else made(tensor, sizes)


def convert_to_tensor(value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None) -> Any:
    """Makes a tensor of Python values, an array or a variable.

    `dtype_hint` is the type of Python numbers for which `dtype` is not given.

    Source: tf.convert_to_tensor.
    """
    if dtype is None and isinstance(value, (int, float, list, tuple)):
        dtype = dtype_hint
    xp, tensor = dispatch.pick(value)
    if dtype is None:
        return as_host(tensor) if xp is dispatch.HOST else tensor
    if xp is not dispatch.HOST:
        return cast(tensor, dtype)
    wanted = as_dtype(dtype)
    if (wanted.dtype == object) != (tensor.dtype == object):
        raise ArgumentError(f"A tensor of {wanted.name} must be made of such values. Received: {value!r}.")
    return as_host(text(tensor) if wanted.dtype == object else tensor.astype(wanted.dtype))


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """Converts elements to another type; 64 bits to 32 unless `jax_enable_x64` is set. Source: tf.cast."""
    xp, x = dispatch.pick(x)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.cast(x, dispatch.usable(xp, dtype))
    wanted = dispatch.usable(xp, dtype)
    if (wanted.kind == "O") != (x.dtype.kind == "O"):
        raise ArgumentError(
            f"Numbers and text are not cast to each other. Received: {x.dtype} to {as_dtype(dtype).name}. Use "
            "tf.strings.to_number or tf.strings.as_string."
        )
    if np.issubdtype(x.dtype, np.complexfloating) and not np.issubdtype(wanted, np.complexfloating):
        x = x.real
    return dispatch.give(xp, _astype(x, wanted))


def _astype(x: Any, wanted: Any) -> Any:
    with np.errstate(invalid="ignore"):  # TensorFlow converts NaN to an integer in silence.
        return x.astype(wanted)


def bitcast(input: Any, type: Any, name: str | None = None) -> Any:
    """Reads the same bytes as elements of another type. Source: tf.bitcast."""
    xp, x = dispatch.pick(input)
    return as_host(x.view(as_dtype(type).dtype)) if xp is dispatch.HOST else x.view(dispatch.usable(xp, type))


def identity(input: Any, name: str | None = None) -> Any:
    """Returns the tensor. Source: tf.identity."""
    return convert_to_tensor(input)


def identity_n(input: Any, name: str | None = None) -> list[Any]:
    """Returns the tensors of a list. Source: tf.identity_n."""
    return [convert_to_tensor(i) for i in input]


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """Returns the tensor, which derivatives take for a constant. Source: tf.stop_gradient."""
    xp, x = dispatch.pick(input)
    return as_host(x) if xp is dispatch.HOST else keras.ops.stop_gradient(x)


def zeros(shape: Any, dtype: Any = float32, name: str | None = None) -> Any:
    """Makes a tensor of zeros; of text: of empty bytes. Source: tf.zeros."""
    return fill(shape, b"" if as_dtype(dtype).dtype == object else np.zeros((), as_dtype(dtype).dtype))


def ones(shape: Any, dtype: Any = float32, name: str | None = None) -> Any:
    """Makes a tensor of ones. Source: tf.ones."""
    return fill(shape, np.ones((), as_dtype(dtype).dtype))


def fill(dims: Any, value: Any, name: str | None = None) -> Any:
    """Makes a tensor of shape `dims` with `value` everywhere. Source: tf.fill."""
    xp, x = dispatch.pick(value)
    filled = xp.broadcast_to(x, _sizes(dims))
    return as_host(filled.copy()) if xp is dispatch.HOST else filled


def _sizes(shape: Any) -> Any:
    sizes = dispatch.static(shape)
    return (sizes,) if isinstance(sizes, int) else sizes


def zeros_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Makes a tensor of zeros of the shape of another. Source: tf.zeros_like."""
    return _like("zeros_like", input, dtype)


def ones_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Makes a tensor of ones of the shape of another. Source: tf.ones_like."""
    return _like("ones_like", input, dtype)


def _like(function: str, value: Any, dtype: Any) -> Any:
    xp, x = dispatch.pick(value)
    made = getattr(xp, function)(x, dtype=None if dtype is None else dispatch.usable(xp, dtype))
    return as_host(made) if xp is dispatch.HOST else made


def eye(
    num_rows: Any, num_columns: Any = None, batch_shape: Any = None, dtype: Any = float32, name: str | None = None
) -> Any:
    """Makes identity matrices, of shape `[*batch_shape, num_rows, num_columns]`. Source: tf.eye."""
    matrix = np.eye(dispatch.static(num_rows), dispatch.static(num_columns), dtype=as_dtype(dtype).dtype)
    return as_host(np.broadcast_to(matrix, (*(_sizes(batch_shape) if batch_shape is not None else ()), *matrix.shape)))


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
    """Makes `[start, start + delta, ...]` up to but without `limit`; with one argument it is the limit.

    Source: tf.range.
    """
    if limit is None:
        start, limit = 0, start
    ends: list[Any] = [np.asarray(v)[()] for v in (start, limit, delta)]
    if dtype is None:
        dtype = np.result_type(*(np.asarray(dispatch.array(dispatch.HOST, v)).dtype for v in (start, limit, delta)))
    return as_host(np.arange(*ends).astype(as_dtype(dtype).dtype))


def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Any:
    """Makes `num` numbers at equal distances, from `start` to `stop`, both included. Source: tf.linspace."""
    xp, start, stop = dispatch.pick(start, stop)
    return dispatch.give(xp, xp.linspace(start, stop, dispatch.static(num), axis=axis))


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Any:
    """Makes vectors of `depth` elements: `on_value` (1) at the index, `off_value` (0) elsewhere.

    Args:
        indices: Integers; one that is out of range gives a vector of `off_value`.
        axis: Where the new dimension goes; -1, the default, is the last.
        dtype: By default that of the values, else float32.

    Source: tf.one_hot.
    """
    xp, indices, on, off = dispatch.pick(indices, on_value, off_value)
    axis = -1 if axis is None else axis
    wanted = dispatch.usable(xp, dtype or _value_type(on, off))
    if xp is dispatch.SYMBOLIC:
        hot = keras.ops.one_hot(indices, dispatch.static(depth), axis=axis, dtype=wanted)
        return hot if on is None and off is None else hot * (_or(on, 1) - _or(off, 0)) + _or(off, 0)
    classes = dispatch.static(depth)
    hits = xp.expand_dims(indices, -1) == xp.arange(classes)
    made = xp.where(hits, xp.asarray(_or(on, 1), wanted), xp.asarray(_or(off, 0), wanted))
    return dispatch.give(xp, xp.moveaxis(made, -1, axis))


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _value_type(on: Any, off: Any) -> Any:
    return next((v.dtype for v in (on, off) if v is not None), float32)


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = bool, name: str | None = None) -> Any:
    """Makes rows of `maxlen` elements of which the first ones, as many as `lengths` says, are true.

    Args:
        lengths: Integers of any shape.
        maxlen: By default the greatest of `lengths`, which must then be known.

    Source: tf.sequence_mask.
    """
    xp, lengths = dispatch.pick(lengths)
    size = dispatch.static(maxlen if maxlen is not None else lengths.max())
    positions = xp.arange(size) if xp is not dispatch.SYMBOLIC else jnp.arange(size)
    mask = positions < xp.expand_dims(lengths, -1)
    return cast(dispatch.give(xp, mask), dtype)


named.all_of(globals())
