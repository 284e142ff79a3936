"""The columns of CSV files: their types, and fields to values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._files.reader import to_text_array
from lockstep.errors import ArgumentError

_DTYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64))
TEXT = np.dtype(object)
_TEXT_NAMES: tuple[Any, ...] = (object, TEXT, bytes, str, "string", "object", "bytes", "str")


@dataclass(frozen=True)
class Column:
    """A column: the index, dtype and default of a field.

    Attributes:
        index: Which field of a record, from 0.
        dtype: `object` for text.
        default: What an empty field stands for, or `None` if it must not be empty.
        na_value: What stands for an empty field too.
    """

    index: int
    dtype: np.dtype[Any]
    default: Any
    na_value: bytes

    def convert(self, fields: list[bytes]) -> np.ndarray[Any, np.dtype[Any]]:
        """Returns values of shape (k,).

        Raises:
            ValueError: If a field has none.
            OverflowError: If a number is too large for the dtype.
        """
        empty = self._empty_fields(fields)
        if empty and self.default is None:
            raise ValueError("required")
        if self.dtype == TEXT:
            return self._fill_empty(to_text_array(fields), empty)
        if empty:
            fields = list(fields)
            for index in empty:
                # Any number: the default replaces it after the conversion of the whole column.
                fields[index] = b"0"
        # int() and float() of Python accept 1_000, TensorFlow does not.
        if b"_" in b"".join(fields):
            raise ValueError("Python's underscores are no digits")
        return self._fill_empty(self._numbers(fields), empty)

    def first_bad(self, fields: list[bytes], error: Exception) -> tuple[int, str]:
        """Returns the index of the first field that has no value, and why."""
        # One by one, only after the column as a whole has failed.
        for index, field in enumerate(fields):
            try:
                self.convert([field])
            except (ValueError, OverflowError):
                return index, self._reason(field)
        return 0, str(error)

    def _numbers(self, fields: list[bytes]) -> np.ndarray[Any, np.dtype[Any]]:
        if self.dtype.kind == "i":
            return np.array([int(field) for field in fields], self.dtype)
        # A number beyond float32 becomes inf, as in TensorFlow.
        with np.errstate(over="ignore"):
            return np.array([float(field) for field in fields], np.float64).astype(self.dtype)

    def _empty_fields(self, fields: list[bytes]) -> list[int]:
        # Two scans in C; the loop below runs only where something is empty.
        if b"" not in fields and self.na_value not in fields:
            return []
        return [index for index, field in enumerate(fields) if not field or field == self.na_value]

    def _fill_empty(self, values: np.ndarray[Any, np.dtype[Any]], empty: list[int]) -> np.ndarray[Any, np.dtype[Any]]:
        if empty:
            values[empty] = self.default
        return values

    def _reason(self, field: bytes) -> str:
        if not field or field == self.na_value:
            return "the field is empty but required. Give the column a default in record_defaults."
        text = field.decode("utf-8", "backslashreplace")
        return f"{text!r} is no {self.dtype.name}. Correct it, or give the column another dtype in record_defaults."


def columns_of(record_defaults: Sequence[Any], select_cols: Sequence[int] | None, na_value: str) -> list[Column]:
    """Returns the columns that the arguments of `open_csv` describe.

    Raises:
        ArgumentError: If they are no description.
    """
    if len(record_defaults) == 0:
        raise ArgumentError("record_defaults names at least one column; received none.")
    indices = list(range(len(record_defaults))) if select_cols is None else [int(index) for index in select_cols]
    if len(indices) != len(record_defaults):
        raise ArgumentError(
            f"record_defaults has one entry per selected column; received {len(record_defaults)} for {len(indices)}."
        )
    if indices[0] < 0 or any(after <= before for before, after in pairwise(indices)):
        raise ArgumentError(f"select_cols are increasing column numbers from 0; received {indices}.")
    return [
        Column(index, *_type_and_default(entry), na_value.encode())
        for index, entry in zip(indices, record_defaults, strict=True)
    ]


def spec(record_defaults: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """Returns the dtypes of the columns, all scalars; text is `object`."""
    return tuple(_type_and_default(entry)[0] for entry in record_defaults)


def _type_and_default(entry: ArrayLike) -> tuple[np.dtype[Any], Any]:
    # A dtype alone says that the field must not be empty, as in tf.data.
    required = _as_dtype(entry)
    if required is not None:
        return required, None
    values = entry if isinstance(entry, np.ndarray) else _plain_array(entry)
    dtype = _check_dtype(values.dtype, entry)
    if any(not isinstance(value, (str, bytes)) for value in values.flat if dtype == TEXT):
        raise ArgumentError(f"a default in record_defaults is a number or text, not {entry!r}.")
    if values.size > 1:
        raise ArgumentError(f"a column has one default; received {entry!r} in record_defaults.")
    default = None if values.size == 0 else values.reshape(-1)[0]
    return dtype, default.encode() if isinstance(default, str) else default


def _as_dtype(entry: ArrayLike) -> np.dtype[Any] | None:
    """Returns the dtype that an entry names; a `str` or `bytes` that names none is a default."""
    if isinstance(entry, (type, np.dtype)):
        return TEXT if entry in _TEXT_NAMES else _check_dtype(np.dtype(entry), entry)
    names: dict[Any, np.dtype[Any]] = {dtype.name: dtype for dtype in _DTYPES}
    name = getattr(entry, "name", None)  # what TensorFlow and ml_dtypes call theirs
    return TEXT if name == "string" else names.get(name)


def _plain_array(entry: ArrayLike) -> np.ndarray[Any, np.dtype[Any]]:
    """Returns Python's values with TensorFlow's types: float32, int32, text."""
    array = np.asarray(entry)
    narrow: dict[str, Any] = {"f": np.float32, "i": np.int32}
    is_typed = hasattr(entry, "dtype") or not array.size
    return array if is_typed or array.dtype.kind not in narrow else array.astype(narrow[array.dtype.kind])


def _check_dtype(dtype: np.dtype[Any], entry: ArrayLike) -> np.dtype[Any]:
    if dtype.kind in "SUO":
        return TEXT
    if dtype in _DTYPES:
        return dtype
    raise ArgumentError(
        f"a column is float32, float64, int32, int64 or text, not {dtype.name}: {entry!r} in record_defaults. Read it "
        f"as one of them and convert it in a map."
    )
