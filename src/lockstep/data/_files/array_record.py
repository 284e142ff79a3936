"""ArrayRecord files: records that are found by their number.

Needs the `array_record` package, which comes with grain.

Source: github.com/google/array_record; grain.python.ArrayRecordDataSource.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import os
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np

from lockstep.data._files.stream import as_path, file_not_found, to_text_array
from lockstep.errors import ArgumentError, InputError, UnsupportedError

_Texts = np.ndarray[Any, np.dtype[Any]]


def open_array_record(path: object) -> ArrayRecordReader:
    """Opens an ArrayRecord file for reading in order.

    Raises:
        DataNotFoundError: If there is no such file.
        InputError: If it is no ArrayRecord file.
        UnsupportedError: If the package `array_record` is not installed.
    """
    return ArrayRecordReader(as_path(path))


def count(path: object) -> int:
    """Returns the number of records in a file; raises the errors of `open_array_record`."""
    reader = open_array_record(path)
    try:
        return reader.count
    finally:
        reader.close()


def take(paths: Any, rows: Iterable[int]) -> _Texts:
    """Returns records by their numbers, as an object array of `bytes`, shape (k,).

    Opens the files; for more than one call use `ArrayRecords`.

    Args:
        paths: A file, or several, which count as one after another.
        rows: Numbers of records from 0, in any order.
    """
    records = ArrayRecords(paths)
    try:
        return records.take(rows)
    finally:
        records.close()


class ArrayRecords:
    """Random access to the records of some files, which count as one after another. Not thread-safe.

    Args:
        paths: A file, or several.

    Raises:
        DataNotFoundError: If there is no such file.
        InputError: If one is no ArrayRecord file.
    """

    def __init__(self, paths: Any) -> None:
        single = isinstance(paths, (str, bytes, os.PathLike))
        self._files = [
            # Random access: reading ahead would read chunks that nobody asks for.
            _File(as_path(path), "readahead_buffer_size:0,max_parallelism:0")
            for path in _as_list(paths, single)
        ]
        # First global number of each file: a binary search then finds the file of a record.
        self._first = [0, *accumulate(file.count for file in self._files)]

    def __len__(self) -> int:
        """Returns the number of records in all files."""
        return self._first[-1]

    def take(self, rows: Iterable[int]) -> _Texts:
        """Returns records by their numbers, shape (k,); rows of one file that stand together are read at once.

        Raises:
            ArgumentError: If there is no record of such a number.
            InputError: If a record is broken.
        """
        wanted = [self._check_number(int(row)) for row in rows]
        records: list[bytes] = []
        # Only neighbours are grouped: the records must come back in the order of `rows`.
        for index, group in groupby(wanted, lambda row: bisect.bisect_right(self._first, row) - 1):
            records += self._files[index].read([row - self._first[index] for row in group])
        return to_text_array(records)

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()

    def _check_number(self, row: int) -> int:
        if 0 <= row < len(self):
            return row
        raise ArgumentError(f"there are {len(self)} records, counted from 0; received number {row}.")


class ArrayRecordReader:
    """A reader of the records of an ArrayRecord file in order; a position is the number of a record."""

    def __init__(self, path: str) -> None:
        self._file = _File(path, "")
        self._next = 0

    @property
    def count(self) -> int:
        """Returns the number of records in the file."""
        return self._file.count

    @property
    def number(self) -> int:
        """Returns the ordinal of the next record."""
        return self._next

    def read(self, limit: int) -> _Texts | None:
        """Returns the next records, shape (k,), or `None` at the end. See `Reader.read`."""
        stop = min(self._next + max(limit, 1), self.count)
        if self._next >= stop:
            return None
        records = to_text_array(self._file.read(range(self._next, stop)))
        self._next = stop
        return records

    def tell(self) -> int:
        """Returns the number of the next record."""
        return self._next

    def seek(self, position: int) -> None:
        """Continues at the record of a number."""
        if not 0 <= position <= self.count:
            raise InputError(
                f"{self._file.path} has {self.count} records; reading was to continue at number {position}. Restore "
                f"the file, or start from the beginning."
            )
        self._next = position

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class _File:
    def __init__(self, path: str, options: str) -> None:
        if not os.path.exists(path):
            raise file_not_found(path)
        self.path = path
        # Before the file is opened: without the package the error should name the package.
        module = _module()
        try:
            self._reader: Any = module.ArrayRecordReader(path, options)
            self.count: int = self._reader.num_records()
            self._check()
        except (RuntimeError, ValueError, IndexError) as error:
            raise self._broken_error("cannot be opened", error) from error

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Returns records by their numbers in this file."""
        try:
            # The library reads a range in one call, faster than a list of the same numbers.
            bounds = (rows.start, rows.stop) if isinstance(rows, range) else (list(rows),)
            records = self._reader.read(*bounds)
            self._check()
            return records
        except (RuntimeError, ValueError, IndexError) as error:
            raise self._broken_error(f"cannot be read at records {rows[0]} to {rows[-1]}", error) from error

    def _check(self) -> None:
        """Checks the file by its reader's status."""
        # The library raises only when a broken reader is closed.
        if not self._reader.ok():
            self._reader.close()
            raise ValueError("it is broken")

    def close(self) -> None:
        if self._reader.is_open():
            with contextlib.suppress(RuntimeError):  # of a broken file; `read` has raised it
                self._reader.close()

    def _broken_error(self, what: str, error: Exception) -> InputError:
        return InputError(f"{self.path} {what}: {error}. It must be a whole ArrayRecord file; copy or write it again.")


def _as_list(paths: Any, single: bool) -> list[Any]:
    files = [paths] if single else list(paths)
    if not files:
        raise ArgumentError("at least one file is needed; received none.")
    return files


def _module() -> Any:
    try:
        # Imported late: the package is optional.
        return importlib.import_module("array_record.python.array_record_module")
    except ImportError as error:
        raise UnsupportedError(
            "reading ArrayRecord files needs the package array_record, which is not installed: pip install grain."
        ) from error
