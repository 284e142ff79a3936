"""Dtypes as text: numpy's by their codes, such as `<f4`, those of ml_dtypes by their names, such as `bfloat16`."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

DType = np.dtype[Any]

_CODE = re.compile(r"[<>|][biufcSUmM][0-9]{1,9}(\[[0-9A-Za-z]{1,20}\])?")
_KINDS = "biufcSUmM"


def _of_ml_dtypes() -> dict[str, DType]:
    found = [value for value in vars(ml_dtypes).values() if isinstance(value, type) and issubclass(value, np.generic)]
    return {dtype.name: dtype for dtype in map(np.dtype, found)}


_EXTRA = _of_ml_dtypes()


def text_of(dtype: DType) -> str | None:
    """Returns the text of a dtype, or `None` if values of it are not kept in checkpoints."""
    if dtype.name in _EXTRA:
        return dtype.name
    code = dtype.str
    return code if dtype.kind in _KINDS and dtype.itemsize and _CODE.fullmatch(code) else None


def dtype_of(text: Any) -> DType:
    """Returns the dtype of a text.

    Raises:
        ValueError: If it is not the text of a dtype that is kept in checkpoints.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.40} is not a dtype")
    if text in _EXTRA:
        return _EXTRA[text]
    try:
        dtype = np.dtype(text) if _CODE.fullmatch(text) else None
    except TypeError:
        dtype = None
    if dtype is None or text_of(dtype) != text:
        raise ValueError(f"{text!r:.40} is not a dtype that is kept in checkpoints here")
    return dtype


def stored_as(dtype: DType) -> str:
    """Returns the code of the dtype that numpy's own reader sees: of ml_dtypes' it sees the bits."""
    return f"<u{dtype.itemsize}" if dtype.name in _EXTRA else dtype.str
