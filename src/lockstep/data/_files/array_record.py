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


class ArrayRecords:
    """Random access to the records of some files, which count as one after another. Not thread-safe.

    Args:
        paths: A file, or several.

    Raises:
        DataNotFoundError: If there is no such file.
        InputError: If one is no ArrayRecord file.
    """

    def __init__(self, paths: Any) -> None:
        names = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)
        if not names:
            raise ArgumentError("at least one file is needed; received none.")
        self._files = [_File(as_path(name)) for name in names]
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
        wanted = [int(row) for row in rows]
        for row in wanted:
            if not 0 <= row < len(self):
                raise ArgumentError(f"there are {len(self)} records, counted from 0; received number {row}.")
        records: list[bytes] = []
        # Only neighbours are grouped: the records must come back in the order of `rows`.
        for index, group in groupby(wanted, lambda row: bisect.bisect_right(self._first, row) - 1):
            records += self._files[index].read([row - self._first[index] for row in group])
        return to_text_array(records)

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()


class _File:
    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            raise file_not_found(path)
        self.path = path
        # Before the file is opened: without the package the error should name the package, which is optional.
        try:
            module = importlib.import_module("array_record.python.array_record_module")
        except ImportError as error:
            raise UnsupportedError(
                "reading ArrayRecord files needs the package array_record, which is not installed: pip install grain."
            ) from error
        try:
            # Random access: reading ahead would read chunks that nobody asks for.
            self._reader: Any = module.ArrayRecordReader(path, "readahead_buffer_size:0,max_parallelism:0")
            self.count: int = self._reader.num_records()
            self._check()
        except (RuntimeError, ValueError, IndexError) as error:
            raise self._broken_error("cannot be opened", error) from error

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Returns records by their numbers in this file."""
        try:
            records = self._reader.read(list(rows))
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
