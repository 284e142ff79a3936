"""Parquet files, row by row: an element is a dict of column to value.

Needs the `pyarrow` package, the optional extra "parquet". Numbers and booleans are scalars; text and binary are
`bytes`; a list of numbers is an array of its own length; a struct is a dict. A missing floating-point number is NaN;
other missing values are refused.

Source: pyarrow.parquet; tfio.IODataset.from_parquet has the same elements.
"""

from __future__ import annotations

import bisect
import importlib
import os
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from lockstep._nest import Packed
from lockstep.data._files.stream import as_path, file_not_found, to_text_array
from lockstep.errors import ArgumentError, InputError, UnsupportedError

_ROWS = 4096


def open_parquet(path: object, columns: Sequence[str] | None = None) -> ParquetReader:
    """Opens a Parquet file.

    Args:
        path: The file.
        columns: The columns to read; `None` for all.

    Raises:
        DataNotFoundError: If there is no such file.
        InputError: If it is no Parquet file.
        ArgumentError: If it has no such column.
        UnsupportedError: If a column holds what no array can hold, or the package `pyarrow` is not installed.
    """
    return ParquetReader(as_path(path), columns)


class ParquetReader:
    """A reader of the rows of a Parquet file; a position is the number of a row."""

    def __init__(self, path: str, columns: Sequence[str] | None) -> None:
        self._path = path
        self._file = _open(path)
        schema = self._file.schema_arrow
        self._columns = list(schema.names if columns is None else columns)
        unknown = [name for name in self._columns if name not in schema.names]
        if unknown or not self._columns:
            raise ArgumentError(
                f"{path} has the columns {', '.join(schema.names) or '(none)'}; received {unknown or self._columns}."
            )
        # Before the first row is read: a column that no array can hold is refused.
        self.spec = {name: shape_and_dtype(path, name, schema.field(name).type) for name in self._columns}
        groups = range(self._file.metadata.num_row_groups)
        # First row of each row group: `seek` reads one group, not the file.
        self._first = [0, *accumulate(self._file.metadata.row_group(group).num_rows for group in groups)]
        self._batches: Iterator[Any] = iter(())
        self.seek(0)

    @property
    def number(self) -> int:
        """Returns the number of the next row."""
        return self._next

    def read(self, limit: int) -> dict[str, Any] | None:
        """Returns the next rows, or `None` at the end. See `Reader.read`.

        Rows whose lists have other lengths than those before them come with the next call.
        """
        if self._batch is None or self._batch.num_rows == 0:
            self._batch = self._next_batch()
            if self._batch is None:
                return None
        # Sliced before conversion: only the rows of this call become numpy arrays.
        rows = self._batch.slice(0, max(limit, 1))
        columns = {name: value_of(rows.column(name), self._path, name, self._next) for name in self._columns}
        # A column of lists may make a shorter run than the others; all columns must have the same rows.
        used = min(_length(value) for value in columns.values())
        self._batch = self._batch.slice(used)
        self._next += used
        # Packed, so that users see the columns in the file's order.
        return Packed((name, _cut(value, used)) for name, value in columns.items())

    def tell(self) -> int:
        """Returns the number of the next row."""
        return self._next

    def seek(self, position: int) -> None:
        """Continues at a row; only its row group is read."""
        if not 0 <= position <= self._first[-1]:
            raise InputError(
                f"{self._path} has {self._first[-1]} rows; reading was to continue at row {position}. Restore the "
                f"file, or start from the beginning."
            )
        group = bisect.bisect_right(self._first, position) - 1
        groups = list(range(group, self._file.metadata.num_row_groups))
        self._batches = iter(self._file.iter_batches(_ROWS, groups, columns=self._columns) if groups else ())
        self._batch = None
        self._skip = position - self._first[group]
        self._next = position

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _next_batch(self) -> Any:
        while True:
            try:
                batch = next(self._batches, None)
            except (OSError, ValueError) as error:
                raise _broken_error(self._path, f"cannot be read near row {self._next}", error) from error
            if batch is None:
                return None
            # Within a row group rows are found by reading: pyarrow has no offset.
            skipped = min(self._skip, batch.num_rows)
            self._skip -= skipped
            if skipped < batch.num_rows:
                return batch.slice(skipped)


def _length(value: Any) -> int:
    return min(map(_length, value.values())) if isinstance(value, dict) else len(value)


def _cut(value: Any, used: int) -> Any:
    if isinstance(value, dict):
        return {name: _cut(child, used) for name, child in value.items()}
    return np.asarray(value)[:used]


def _open(path: str) -> Any:
    if not os.path.exists(path):
        raise file_not_found(path)
    try:
        # Imported late: the package is optional.
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise UnsupportedError(
            "reading Parquet files needs the package pyarrow, which is not installed: pip install 'lockstep[parquet]'."
        ) from error
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise _broken_error(path, "cannot be opened", error) from error


def _broken_error(path: str, what: str, error: Exception) -> InputError:
    return InputError(f"{path} {what}: {error}. It must be a whole Parquet file; copy or write it again.")


def shape_and_dtype(path: str, name: str, kind: Any) -> Any:
    """Returns (shape, dtype) of a row's value, or a dict of them for a struct; a list of any length is (None,)."""
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
    """Returns the values of the leading rows, (k, ...), or a dict of them; of lists, the first ones of one length."""
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        # A dictionary column repeats a few values; rows hold their indices.
        column = column.dictionary_decode()
    if types.is_struct(column.type):
        _check_present(column, path, name, row)
        fields = [(field.name, child) for field, child in zip(column.type, column.flatten(), strict=True)]
        return {key: value_of(child, path, f"{name}.{key}", row) for key, child in fields}
    if not _is_list(column.type):
        return _scalars(column, path, name, row)
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
        # "or soon after" in the message: of a nested column only the first row of the batch is known.
        first = row + column.is_null().to_pylist().index(True)
        raise InputError(
            f"{path}: column {name!r} has no value in row {first} or soon after; only floating-point columns may lack "
            f"values. Fill them before the file is written, or leave the column out with columns=."
        )


def _leaf(path: str, name: str, kind: Any) -> tuple[tuple[int | None, ...], np.dtype[Any]]:
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
