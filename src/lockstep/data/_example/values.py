"""The values of one feature of one example, as an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._example.features import TEXT, Description, FixedLenFeature, FixedLenSequenceFeature
from lockstep.data._files.reader import to_text_array
from lockstep.errors import ArgumentError, InputError

_Array = np.ndarray[Any, np.dtype[Any]]
_LISTS = {np.dtype(np.float32): "float_list", np.dtype(np.int64): "int64_list", TEXT: "bytes_list"}
_NAMES = {"float_list": "float32", "int64_list": "int64", "bytes_list": "text"}


def serialized_bytes(serialized: ArrayLike) -> bytes:
    """Returns a serialised message; text arrays of shape () hold one too.

    Raises:
        ArgumentError: If it is none.
    """
    if isinstance(serialized, np.ndarray) and serialized.ndim == 0:
        serialized = serialized.item()
    if isinstance(serialized, (bytes, bytearray)):
        return bytes(serialized)
    raise ArgumentError(
        f"a serialised message is bytes, not {type(serialized).__name__}. For a batch of examples use parse_example."
    )


def values_of(feature: Any, key: str, dtype: np.dtype[Any], where: str) -> _Array | None:
    """Returns a feature's values, (n,), or `None` if it is missing.

    Raises:
        InputError: If it holds values of another type.
    """
    # A Feature without any list is a missing value, as in TensorFlow.
    kind = None if feature is None else feature.WhichOneof("kind")
    if kind is None:
        return None
    values = getattr(feature, kind).value
    if kind != _LISTS[dtype]:
        raise InputError(
            f"feature {key!r} of {where} holds {len(values)} values of {_NAMES[kind]}; {_NAMES[_LISTS[dtype]]} is "
            f"described. Correct the description."
        )
    return to_text_array(values) if dtype == TEXT else np.array(values, dtype)


def to_shape(values: _Array, key: str, shape: Sequence[int], count: int, where: str) -> _Array:
    """Returns values as (n, *shape), where `count` values make one array of that shape.

    Raises:
        InputError: If they are no whole number of arrays.
    """
    if count == 0 or len(values) % count:
        raise InputError(
            f"feature {key!r} of {where} holds {len(values)} values, which is no whole number of arrays of shape "
            f"{list(shape)}. Correct the description, or use a VarLenFeature."
        )
    return values.reshape(-1, *shape)


def value_count(feature: Description) -> int:
    """Returns how many values one array of the feature's shape takes."""
    return math.prod(feature.shape) if isinstance(feature, (FixedLenFeature, FixedLenSequenceFeature)) else 1


def missing_feature(key: str, where: str) -> InputError:
    """Returns the error for a feature that is not there."""
    return InputError(
        f"feature {key!r} is missing from {where}. Give it a default_value, or check the name and the file."
    )
