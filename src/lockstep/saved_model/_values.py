"""Conversion of a caller's inputs to arrays of a signature's types and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep._types import ArrayLike, DType
from lockstep.errors import ArgumentError
from lockstep.saved_model._description import TensorInfo

_Array = np.ndarray[Any, np.dtype[Any]]


def to_inputs(signature: str, infos: Mapping[str, TensorInfo], given: Mapping[str, Any]) -> dict[str, _Array]:
    """Returns a caller's inputs as arrays; raises `ArgumentError` if the signature does not take them."""
    # All at once, so that a caller sees everything that is missing or too much.
    if set(given) != set(infos):
        raise ArgumentError(
            f"The signature {signature!r} takes {describe(infos)}. Received: "
            f"{', '.join(sorted(map(str, given))) or 'nothing'}. Give each of its inputs, by name."
        )
    return {
        name: _as_input(f"{name!r} of the signature {signature!r}", info, given[name]) for name, info in infos.items()
    }


def describe(infos: Mapping[str, TensorInfo]) -> str:
    """Returns inputs or outputs for a message."""
    return ", ".join(f"{name}: {info}" for name, info in infos.items()) or "no inputs"


def count_examples(signature: str, infos: Mapping[str, TensorInfo], arrays: Mapping[str, _Array]) -> int | None:
    """Returns the number of examples, `None` if the inputs have none; raises `ArgumentError` if they differ in it."""
    counts = {name: len(arrays[name]) for name, info in infos.items() if info.shape and info.shape[0] is None}
    if len(set(counts.values())) > 1:
        raise ArgumentError(
            f"All inputs of the signature {signature!r} hold the same number of examples. Received: "
            f"{', '.join(f'{count} of {name!r}' for name, count in counts.items())}."
        )
    return next(iter(counts.values()), None)


def check_ties(signature: str, infos: Mapping[str, TensorInfo], arrays: Mapping[str, _Array]) -> None:
    """Raises `ArgumentError` unless open sizes at the same place of different inputs are equal."""
    met: dict[int, tuple[str, int]] = {}
    for name, info in infos.items():
        for axis in (axis for axis, size in enumerate(info.shape) if axis and size is None):
            first, size = met.setdefault(axis, (name, arrays[name].shape[axis]))
            if arrays[name].shape[axis] != size:
                raise ArgumentError(
                    f"The signature {signature!r} computes with inputs of the same length. Received: shape "
                    f"{list(arrays[first].shape)} of {first!r} and {list(arrays[name].shape)} of {name!r}. Pad them."
                )


def _as_input(where: str, info: TensorInfo, value: ArrayLike) -> _Array:
    array = _as_text(where, value) if info.is_text else _as_numbers(where, info.dtype, value)
    _check_shape(where, info, array.shape)
    return array


def _as_numbers(where: str, dtype: str, value: ArrayLike) -> _Array:
    array = _as_array(where, value)
    wanted = jnp.dtype(dtype)
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "OSU" and _is_lossless(array, wanted, is_python=not hasattr(value, "dtype")):
        return array.astype(wanted)
    kind = "text or mixed values" if array.dtype.kind in "OSU" else array.dtype.name
    raise ArgumentError(f"{where} is of type {dtype}. Received: {kind}. Convert it: np.asarray(x, {dtype!r}).")


def _is_lossless(array: _Array, wanted: DType, is_python: bool) -> bool:
    """Returns whether numbers are the same in another type; Python's numbers only have to fit into it."""
    if np.can_cast(array.dtype, wanted, "safe"):
        return True
    if not is_python:
        return False
    # 1.5 has no type of its own in Python, so it becomes whatever float is wanted; 1.5 is never an integer.
    if jnp.issubdtype(wanted, jnp.inexact):
        return array.dtype.kind in "iuf" or jnp.issubdtype(wanted, jnp.complexfloating)
    return array.size == 0 or (array.dtype.kind in "iu" and fits(array, wanted))


def fits(array: _Array, wanted: DType) -> bool:
    """Returns whether all integers of an array are there in another type."""
    return bool(np.array_equal(array.astype(wanted), array)) if wanted.kind in "iu" else False


def _as_array(where: str, value: ArrayLike) -> _Array:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"{where} is an array: all its rows have the same length. {error}.") from error


def _as_text(where: str, value: ArrayLike) -> _Array:
    # As objects, because numpy would cut zero bytes off the end of text, and turn numbers among text into text.
    array = _as_array(where, value if hasattr(value, "dtype") else np.array(value, object))
    flat = array.reshape(-1).tolist()
    odd = next((one for one in flat if not isinstance(one, (bytes, str))), None)
    if odd is not None:
        raise ArgumentError(f"{where} is text: bytes or str. Received: {type(odd).__name__}, {odd!r:.60}.")
    text = np.empty(len(flat), object)
    text[:] = [one.encode() if isinstance(one, str) else one for one in flat]
    return text.reshape(array.shape)


def _check_shape(where: str, info: TensorInfo, shape: tuple[int, ...]) -> None:
    wanted = info.shape
    is_right = len(shape) == len(wanted) and all(w is None or w == s for w, s in zip(wanted, shape, strict=True))
    if not is_right:
        raise ArgumentError(f"{where} is {info}. Received: shape {list(shape)}.")
    # A symbol of jax.export stands for 1 or more, so no program takes it.
    if 0 in [s for s, w in zip(shape[1:], wanted[1:], strict=True) if w is None]:
        raise ArgumentError(f"{where} is {info}, where ? is at least 1. Received: shape {list(shape)}.")
