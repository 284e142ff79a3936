"""Functions that make tensors."""

# ruff: noqa: D417

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._composite import CompositeTensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._error_kinds import ArgumentTypeError
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._tensor import as_host, read_only, to_text
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike, SizeLike
from lockstep.data import DatasetSpec
from lockstep.errors import ArgumentError

__all__ = ["bitcast", "cast", "constant", "convert_to_tensor", "eye", "fill", "identity", "identity_n", "linspace"]
__all__ += [
    "one_hot",
    "ones",
    "ones_like",
    "range",
    "register_tensor_conversion_function",
    "sequence_mask",
    "stop_gradient",
    "type_spec_from_value",
    "zeros",
    "zeros_like",
]


def constant(value: Tensor, dtype: DTypeLike = None, shape: ShapeLike = None, name: str | None = None) -> Tensor:
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
    xp = dispatch.library_of(tensor)
    sizes = dispatch.to_static(shape)
    # TensorFlow repeats a single value, and arranges several.
    arrange = xp.broadcast_to if tensor.size == 1 else xp.reshape
    return as_host(arrange(np.asarray(tensor), sizes)) if xp is dispatch.HOST else arrange(tensor, sizes)


def convert_to_tensor(
    value: Tensor, dtype: DTypeLike = None, dtype_hint: DTypeLike = None, name: str | None = None
) -> Tensor:
    """Makes a tensor of Python values, an array or a variable.

    `dtype_hint` is the type of Python numbers for which `dtype` is not given.

    Source: tf.convert_to_tensor.
    """
    for kind, convert in _conversions.items():
        if isinstance(value, kind):
            value = convert(value, dtype=dtype, name=name, as_ref=False)
            break
    # A hint is for Python's values; an array has its type.
    if dtype is None and isinstance(value, (int, float, list, tuple)):
        dtype = dtype_hint
    if value is None:
        raise ArgumentError("A tensor is made of numbers, text, lists of them, or arrays. Received: None.")
    if type(value) is np.ndarray:
        # As TensorFlow: what the program does to its array does not change the tensor.
        value = read_only(value.copy())
    xp, tensor = dispatch.pick(value)
    if xp is dispatch.HOST and isinstance(value, _PYTHON):
        tensor = read_only(tensor)
    if dtype is None:
        return as_host(tensor) if xp is dispatch.HOST else tensor
    if xp is not dispatch.HOST:
        return cast(tensor, dtype)
    wanted = as_dtype(dtype)
    if tensor.size == 0 and not isinstance(value, np.ndarray):
        # A list of nothing is of any type.
        return as_host(np.empty(tensor.shape, wanted.dtype))
    if (wanted.dtype == object) != (tensor.dtype == object):
        raise ArgumentTypeError(f"A tensor of {wanted.name} must be made of such values. Received: {value!r}.")
    # An array is converted; Python's floats are no integers.
    is_python = isinstance(value, (int, float, list, tuple))
    if is_python and tensor.size and tensor.dtype.kind == "f" and wanted.dtype.kind in "iub":
        raise ArgumentTypeError(f"A tensor of {wanted.name} must be made of such values. Received: {value!r}.")
    return as_host(read_only(to_text(tensor) if wanted.dtype == object else tensor.astype(wanted.dtype)))


# Values of which an array is made, and not viewed.
_PYTHON = (bool, int, float, complex, list, tuple, np.generic)

# Of classes of programs, the last one first.
_conversions: dict[type, Callable[..., Any]] = {}


def register_tensor_conversion_function(
    base_type: type | tuple[type, ...], conversion_func: Callable[..., Any], priority: int = 100
) -> None:
    """Has `convert_to_tensor` make tensors of objects of a class by a function.

    Args:
        base_type: The class, or several.
        conversion_func: Called with the object, and `dtype`, `name` and `as_ref` by name; returns a tensor.
        priority: Must be 100: of several functions the last one counts.

    Raises:
        ArgumentError: If an argument is of another kind.

    Source: tf.register_tensor_conversion_function.
    """
    kinds = base_type if isinstance(base_type, tuple) else (base_type,)
    are_types = all(isinstance(kind, type) for kind in kinds)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not are_types or not callable(conversion_func) or priority != 100:
        raise ArgumentError(
            "A conversion is of a class, by a function, with priority=100. Received: "
            f"{base_type!r:.60}, {conversion_func!r:.60}, {priority!r}."
        )
    for kind in kinds:
        _conversions.pop(kind, None)
    for kind in kinds:
        known = dict(_conversions)
        _conversions.clear()
        _conversions.update({kind: conversion_func, **known})


def type_spec_from_value(value: Any) -> Any:
    """Returns the spec of a tensor. Source: tf.type_spec_from_value."""
    if isinstance(value, CompositeTensor):
        return value.spec
    if hasattr(value, "element_spec"):
        return DatasetSpec(value.element_spec)
    return TensorSpec.from_tensor(convert_to_tensor(value))


def cast(x: Tensor, dtype: DTypeLike, name: str | None = None) -> Tensor:
    """Converts elements to another type; 64 bits to 32 unless `jax_enable_x64` is set. Source: tf.cast."""
    xp, x = dispatch.pick(x)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.cast(x, dispatch.usable_dtype(xp, dtype))
    wanted = dispatch.usable_dtype(xp, dtype)
    if (wanted.kind == "O") != (x.dtype.kind == "O"):
        raise ArgumentError(
            f"Numbers and text are not cast to each other. Received: {x.dtype} to {as_dtype(dtype).name}. Use "
            "tf.strings.to_number or tf.strings.as_string."
        )
    # TensorFlow drops the imaginary part; numpy would warn.
    if np.issubdtype(x.dtype, np.complexfloating) and not np.issubdtype(wanted, np.complexfloating):
        x = x.real
    with np.errstate(invalid="ignore"):  # TensorFlow converts NaN to an integer in silence.
        return dispatch.give(xp, x.astype(wanted))


def bitcast(input: Tensor, type: DTypeLike, name: str | None = None) -> Tensor:
    """Reads the same bytes as elements of another type. Source: tf.bitcast."""
    xp, x = dispatch.pick(input)
    return as_host(x.view(as_dtype(type).dtype)) if xp is dispatch.HOST else x.view(dispatch.usable_dtype(xp, type))


def identity(input: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor. Source: tf.identity."""
    return convert_to_tensor(input)


def identity_n(input: Tensor, name: str | None = None) -> list[Tensor]:
    """Returns the tensors of a list. Source: tf.identity_n."""
    return [convert_to_tensor(i) for i in input]


def stop_gradient(input: Tensor, name: str | None = None) -> Tensor:
    """Returns the tensor, which derivatives take for a constant. Source: tf.stop_gradient."""
    xp, x = dispatch.pick(input)
    return as_host(x) if xp is dispatch.HOST else keras.ops.stop_gradient(x)


def zeros(shape: ShapeLike, dtype: DTypeLike = float32, name: str | None = None) -> Tensor:
    """Makes a tensor of zeros; of text: of empty bytes. Source: tf.zeros."""
    # TensorFlow's zero of text is the empty one.
    return fill(shape, b"" if as_dtype(dtype).dtype == object else np.zeros((), as_dtype(dtype).dtype))


def ones(shape: ShapeLike, dtype: DTypeLike = float32, name: str | None = None) -> Tensor:
    """Makes a tensor of ones. Source: tf.ones."""
    return fill(shape, np.ones((), as_dtype(dtype).dtype))


def fill(dims: ShapeLike, value: Tensor, name: str | None = None) -> Tensor:
    """Makes a tensor of shape `dims` with `value` everywhere. Source: tf.fill."""
    xp, x = dispatch.pick(value)
    filled = xp.broadcast_to(x, dispatch.to_shape(dims))
    # All elements of a broadcast view are the same memory.
    return as_host(filled.copy()) if xp is dispatch.HOST else filled


def zeros_like(input: Tensor, dtype: DTypeLike = None, name: str | None = None) -> Tensor:
    """Makes a tensor of zeros of the shape of another. Source: tf.zeros_like."""
    return _fill_like("zeros_like", input, dtype)


def ones_like(input: Tensor, dtype: DTypeLike = None, name: str | None = None) -> Tensor:
    """Makes a tensor of ones of the shape of another. Source: tf.ones_like."""
    return _fill_like("ones_like", input, dtype)


def _fill_like(function: str, value: Tensor, dtype: DTypeLike) -> Any:
    xp, x = dispatch.pick(value)
    filled = getattr(xp, function)(x, dtype=None if dtype is None else dispatch.usable_dtype(xp, dtype))
    return as_host(filled) if xp is dispatch.HOST else filled


def eye(
    num_rows: SizeLike,
    num_columns: SizeLike = None,
    batch_shape: ShapeLike = None,
    dtype: DTypeLike = float32,
    name: str | None = None,
) -> Tensor:
    """Makes identity matrices, of shape `[*batch_shape, num_rows, num_columns]`. Source: tf.eye."""
    # Made on the host: sizes are known, and JAX takes it as a constant.
    matrix = np.eye(dispatch.to_static(num_rows), dispatch.to_static(num_columns), dtype=as_dtype(dtype).dtype)
    return as_host(
        np.broadcast_to(matrix, (*(dispatch.to_shape(batch_shape) if batch_shape is not None else ()), *matrix.shape))
    )


def range(
    start: Tensor, limit: Tensor = None, delta: Tensor = 1, dtype: DTypeLike = None, name: str | None = None
) -> Tensor:
    """Makes `[start, start + delta, ...]` up to but without `limit`; with one argument it is the limit.

    Source: tf.range.
    """
    # With one argument it is the limit, as Python's range.
    if limit is None:
        start, limit = 0, start
    ends: list[Any] = [np.asarray(v)[()] for v in (start, limit, delta)]
    if dtype is None:
        # TensorFlow's rule: the type that start, limit and delta have in common.
        dtype = np.result_type(*(np.asarray(dispatch.to_array(dispatch.HOST, v)).dtype for v in (start, limit, delta)))
    return as_host(np.arange(*ends).astype(as_dtype(dtype).dtype))


def linspace(start: Tensor, stop: Tensor, num: SizeLike, name: str | None = None, axis: int = 0) -> Tensor:
    """Makes `num` numbers at equal distances, from `start` to `stop`, both included. Source: tf.linspace."""
    xp, start, stop = dispatch.pick(start, stop)
    return dispatch.give(xp, xp.linspace(start, stop, dispatch.to_static(num), axis=axis))


def one_hot(
    indices: Tensor,
    depth: SizeLike,
    on_value: Tensor = None,
    off_value: Tensor = None,
    axis: int | None = None,
    dtype: DTypeLike = None,
    name: str | None = None,
) -> Tensor:
    """Makes vectors of `depth` elements: `on_value` (1) at the index, `off_value` (0) elsewhere.

    Args:
        indices: Integers; one that is out of range gives a vector of `off_value`.
        axis: Where the new dimension goes; -1, the default, is the last.
        dtype: By default that of the values, else float32.

    Source: tf.one_hot.
    """
    xp, indices, on, off = dispatch.pick(indices, on_value, off_value)
    axis = -1 if axis is None else axis
    wanted = dispatch.usable_dtype(xp, dtype or next((v.dtype for v in (on, off) if v is not None), float32))
    has_values = on is not None or off is not None
    on, off = 1 if on is None else on, 0 if off is None else off
    classes = dispatch.to_static(depth)
    if xp is dispatch.SYMBOLIC:
        hot: Any = keras.ops.one_hot(indices, classes, axis=axis, dtype=wanted)
        return hot * (on - off) + off if has_values else hot
    # A comparison: an index out of range gives a row of off_value, as in TensorFlow.
    hits = xp.expand_dims(indices, -1) == xp.arange(classes)
    rows = xp.where(hits, xp.asarray(on, wanted), xp.asarray(off, wanted))
    return dispatch.give(xp, xp.moveaxis(rows, -1, axis))


def sequence_mask(lengths: Tensor, maxlen: SizeLike = None, dtype: DTypeLike = bool, name: str | None = None) -> Tensor:
    """Makes rows of `maxlen` elements of which the first ones, as many as `lengths` says, are true.

    Args:
        lengths: Integers of any shape.
        maxlen: By default the greatest of `lengths`, which must then be known.

    Source: tf.sequence_mask.
    """
    xp, lengths = dispatch.pick(lengths)
    # The greatest length decides the shape, so that it has to be known.
    size = dispatch.to_static(maxlen if maxlen is not None else lengths.max())
    positions = xp.arange(size) if xp is not dispatch.SYMBOLIC else jnp.arange(size)
    mask = positions < xp.expand_dims(lengths, -1)
    return cast(dispatch.give(xp, mask), dtype)


named.record_names(globals())
