"""Types of features: text, integers, floating-point numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lockstep._types import DType
from lockstep.errors import ArgumentError

TEXT = np.dtype(object)
_TEXT_NAMES: tuple[Any, ...] = (object, TEXT, bytes, str, "string", "bytes", "str", "object")


def to_dtype(dtype: DType, key: str) -> np.dtype[Any]:
    """Converts a dtype, a name or TensorFlow's dtype to numpy's; `object` stands for text.

    Raises:
        ArgumentError: If it is no dtype.
    """
    name = getattr(dtype, "name", dtype)
    if any(dtype is known or name == known for known in _TEXT_NAMES):
        return TEXT
    try:
        numpy_dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(name)
    except TypeError:
        raise ArgumentError(
            f"dtype must be a type of text or numbers. Received for {key!r}: {dtype!r}. Example: 'string', np.int64."
        ) from None
    return TEXT if numpy_dtype.kind in "US" else numpy_dtype


def is_integer(dtype: DType) -> bool:
    """Returns whether it is an integer dtype; bool is none."""
    return np.dtype(dtype).kind in "iu"


def is_number(dtype: DType) -> bool:
    """Returns whether it is an integer or floating dtype."""
    return np.dtype(dtype).kind in "iuf" or np.dtype(dtype) == ml_dtypes.bfloat16


def to_categorical_dtype(dtype: DType, key: str) -> np.dtype[Any]:
    """Converts a dtype of a categorical column, see `to_dtype`.

    Raises:
        ArgumentError: If it is neither text nor integers.
    """
    numpy_dtype = to_dtype(dtype, key)
    if numpy_dtype == TEXT or is_integer(numpy_dtype):
        return numpy_dtype
    raise ArgumentError(
        f"A categorical column is of text or of integers. Received for {key!r}: {numpy_dtype.name}. Put real numbers "
        "into buckets first, with bucketized_column."
    )


def check_key(key: object) -> str:
    """Checks a feature's name.

    Raises:
        ArgumentError: If it is no str.
    """
    if not isinstance(key, str):
        raise ArgumentError(f"key must be the name of a feature, a str. Received: {key!r} ({type(key).__name__}).")
    return key


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Returns a dtype's name for messages."""
    return "text" if dtype == TEXT else dtype.name
