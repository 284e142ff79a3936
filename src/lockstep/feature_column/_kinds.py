"""Types of features: text, integers, floating-point numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lockstep.errors import ArgumentError

TEXT = np.dtype(object)
_TEXT_NAMES: tuple[Any, ...] = (object, TEXT, bytes, str, "string", "bytes", "str", "object")


def as_dtype(dtype: Any, key: str) -> np.dtype[Any]:
    """Returns a numpy type, `object` for text; takes names, numpy's and TensorFlow's types.

    Raises:
        ArgumentError: If it is none.
    """
    name = getattr(dtype, "name", dtype)
    if any(dtype is known or name == known for known in _TEXT_NAMES):
        return TEXT
    try:
        found = dtype if isinstance(dtype, np.dtype) else np.dtype(name)
    except TypeError:
        raise ArgumentError(
            f"dtype must be a type of text or numbers. Received for {key!r}: {dtype!r}. Example: 'string', np.int64."
        ) from None
    return TEXT if found.kind in "US" else found


def is_integer(dtype: Any) -> bool:
    """Whether it is a type of integers; truth values are none."""
    return np.dtype(dtype).kind in "iu"


def is_number(dtype: Any) -> bool:
    """Whether it is a type of integers or real numbers."""
    return np.dtype(dtype).kind in "iuf" or np.dtype(dtype) == ml_dtypes.bfloat16


def text_or_integer(dtype: Any, key: str) -> np.dtype[Any]:
    """Returns a type as `as_dtype` does.

    Raises:
        ArgumentError: If it is neither text nor integers.
    """
    found = as_dtype(dtype, key)
    if found == TEXT or is_integer(found):
        return found
    raise ArgumentError(
        f"A categorical column is of text or of integers. Received for {key!r}: {found.name}. Put real numbers into "
        "buckets first, with bucketized_column."
    )


def checked_key(key: Any) -> str:
    """Returns the name of a feature.

    Raises:
        ArgumentError: If it is no text.
    """
    if not isinstance(key, str):
        raise ArgumentError(f"key must be the name of a feature, a str. Received: {key!r} ({type(key).__name__}).")
    return key


def described(dtype: np.dtype[Any]) -> str:
    """Returns what to call a type in messages."""
    return "text" if dtype == TEXT else dtype.name
