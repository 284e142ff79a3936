"""Parquet files, row by row: an element is a dict of column to value.

Needs the `pyarrow` package, the optional extra "parquet". Numbers and booleans are scalars; text and binary are
`bytes`; a list of numbers is an array of its own length; a struct is a dict. A missing floating-point number is NaN;
other missing values are refused.

Source: pyarrow.parquet; tfio.IODataset.from_parquet has the same elements.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from lockstep._nest import Packed
from lockstep.data._files.parquet_columns import shape_and_dtype, value_of
from lockstep.data._files.stream import as_path, file_not_found
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


def count(path: object) -> int:
    """Returns the number of rows; raises the errors of `open_parquet`."""
    file = _open(as_path(path))
    try:
        return file.metadata.num_rows
    finally:
        file.close()


def spec(path: object, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns for each column (shape, dtype); a list of any length has shape `(None,)`, text is `object`.

    Raises the errors of `open_parquet`.
    """
    reader = open_parquet(path, columns)
    try:
        return reader.spec
    finally:
        reader.close()


class ParquetReader:
    """A reader of the rows of a Parquet file; a position is the number of a row."""

    def __init__(self, path: str, columns: Sequence[str] | None) -> None:
        self._path = path
        self._file = _open(path)
        schema = self._file.schema_arrow
        self._columns = _check_columns(path, columns, schema.names)
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
        rows = self._batch.slice(0, max(limit, 1))
        values, used = self._values(rows)
        self._batch = self._batch.slice(used)
        self._next += used
        return values

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
        self._batches = self._iterate(group)
        self._batch = None
        self._skip = position - self._first[group]
        self._next = position

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _iterate(self, group: int) -> Iterator[Any]:
        groups = list(range(group, self._file.metadata.num_row_groups))
        return iter(self._file.iter_batches(_ROWS, groups, columns=self._columns) if groups else ())

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

    def _values(self, rows: Any) -> tuple[dict[str, Any], int]:
        """Returns the columns of the longest run of rows that make arrays, and its length."""
        columns: dict[str, Any] = {}
        for name in self._columns:
            columns[name] = value_of(rows.column(name), self._path, name, self._next)
        # A column of lists may make a shorter run than the others; all columns must have the same rows.
        used = min(_length(value) for value in columns.values())
        return Packed((name, _cut(value, used)) for name, value in columns.items()), used


def _length(value: Any) -> int:
    return min(map(_length, value.values())) if isinstance(value, dict) else len(value)


def _cut(value: Any, used: int) -> Any:
    if isinstance(value, dict):
        return {name: _cut(child, used) for name, child in value.items()}
    return np.asarray(value)[:used]


def _check_columns(path: str, columns: Sequence[str] | None, names: list[str]) -> list[str]:
    wanted = list(names if columns is None else columns)
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        raise ArgumentError(f"{path} has the columns {', '.join(names) or '(none)'}; received {unknown or wanted}.")
    return wanted


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
