"""Arrow's columns as numpy arrays."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from lockstep.data._files.reader import to_text_array
from lockstep.errors import InputError, UnsupportedError

_Leaf = tuple[tuple[int | None, ...], np.dtype[Any]]


def shape_and_dtype(path: str, name: str, kind: Any) -> Any:
    """Returns (shape, dtype) of a row's value, or a dict of them for a struct.

    Raises:
        UnsupportedError: If no array can hold it.
    """
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_struct(kind):
        return {field.name: shape_and_dtype(path, f"{name}.{field.name}", field.type) for field in kind}
    if _is_list(kind):
        shape, dtype = _leaf(path, name, kind.value_type)
        return (kind.list_size if types.is_fixed_size_list(kind) else None, *shape), dtype
    return _leaf(path, name, kind)


def value_of(column: Any, path: str, name: str, row: int) -> Any:
    """Returns the values of the leading rows, (k, ...), or a dict of them; of lists, the first ones of one length.

    Raises:
        InputError: If a value is missing that is no floating-point number.
    """
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        # A dictionary column repeats a few values; rows hold their indices.
        column = column.dictionary_decode()
    if types.is_struct(column.type):
        _check_present(column, path, name, row)
        fields = [(field.name, child) for field, child in zip(column.type, column.flatten(), strict=True)]
        return {key: value_of(child, path, f"{name}.{key}", row) for key, child in fields}
    if _is_list(column.type):
        return _lists(column, path, name, row)
    return _scalars(column, path, name, row)


def _lists(column: Any, path: str, name: str, row: int) -> Any:
    """Returns the lists of the leading rows that have one length, shape (k, length)."""
    compute: Any = importlib.import_module("pyarrow.compute")
    _check_present(column, path, name, row)
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    # Rows up to the first of another length are one array; the rest comes with the next call.
    other = np.flatnonzero(lengths != lengths[0])
    run = int(other[0]) if other.size else len(lengths)
    return _scalars(column.slice(0, run).flatten(), path, name, row).reshape(run, int(lengths[0]))


def _scalars(column: Any, path: str, name: str, row: int) -> np.ndarray[Any, np.dtype[Any]]:
    import pyarrow.types as types

    # A missing float is NaN; an integer has no such value.
    if not types.is_floating(column.type):
        _check_present(column, path, name, row)
    if _is_text(column.type):
        return to_text_array([value.encode() if isinstance(value, str) else value for value in column.to_pylist()])
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False))


def _check_present(column: Any, path: str, name: str, row: int) -> None:
    if column.null_count:
        first = row + column.is_null().to_pylist().index(True)
        raise InputError(
            f"{path}: column {name!r} has no value in row {first} or soon after; only floating-point columns may lack "
            f"values. Fill them before the file is written, or leave the column out with columns=."
        )


def _leaf(path: str, name: str, kind: Any) -> _Leaf:
    import pyarrow.types as types

    if _is_text(kind):
        return (), np.dtype(object)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return (), np.dtype(kind.to_pandas_dtype())
    raise UnsupportedError(
        f"{path}: column {name!r} is of the type {kind}, which is none of numbers, booleans, text, lists of them and "
        f"structs. Convert it before the file is written, or leave it out with columns=."
    )


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(test(kind) for test in tests)
