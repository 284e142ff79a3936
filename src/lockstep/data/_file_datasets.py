"""Datasets of the records of files."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._types import PyTree
from lockstep.data import _check, _columns
from lockstep.data._blocks import Block, array_block
from lockstep.data._columns import Columns, Rows
from lockstep.data._dataset import Dataset
from lockstep.data._dataset_base import plan_of
from lockstep.data._dataset_sources import file_names
from lockstep.data._files import array_record, csv, parquet, records, tfrecord
from lockstep.data._files.stream import Reader
from lockstep.data._options import AUTOTUNE
from lockstep.data._peek import peek_spec
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, State
from lockstep.data._sources import StoreSource
from lockstep.data._spec import TensorSpec
from lockstep.data._structure import TEXT
from lockstep.data._transforms.interleave import Interleave

if TYPE_CHECKING:
    from lockstep.data._files.stream import Reader

_SCALAR_TEXT = TensorSpec((), TEXT)


class Files(Node):
    """The records of files.

    Args:
        paths: The files, in order.
        opened: Opens one.
        kind: What they are, for messages.
        spec: What the records look like, or `None` if only reading shows it.
    """

    def __init__(self, paths: Sequence[str], opened: Callable[[str], Reader], kind: str, spec: PyTree = None) -> None:
        self.paths = tuple(paths)
        self._opened = opened
        self._kind = kind
        self._spec = spec

    def open(self, run: Run) -> Cursor:
        return _FilesCursor(self.paths, self._opened)

    @property
    def spec(self) -> Any:
        if self._spec is None:
            self._spec = peek_spec(self)
        return self._spec

    @property
    def cardinality(self) -> int:
        return UNKNOWN

    @property
    def label(self) -> str:
        return f"{self._kind}({len(self.paths)} files)"

    def shard(self, count: int, index: int) -> Files:
        """Returns every `count`-th file."""
        return Files(self.paths[index::count], self._opened, self._kind, self._spec)


class _FilesCursor:
    """A cursor whose state is a file and a position in it."""

    def __init__(self, paths: Sequence[str], opened: Callable[[str], Reader]) -> None:
        self._paths = paths
        self._opened = opened
        self._index: int = 0
        self._reader: Reader | None = None

    def next(self, limit: int) -> Block | None:
        while self._index < len(self._paths):
            path = self._paths[self._index]
            try:
                if self._reader is None:
                    self._reader = self._opened(path)
                first = self._reader.number
                records = self._reader.read(limit)
            except Exception:
                self._end_file()  # What cannot be read is not tried again: `ignore_errors` goes on with the next file.
                raise
            # A file without records is passed over; the dataset goes on with the next.
            if records is not None and jax.tree.leaves(records) and _columns.length(records):
                return array_block(records, f"{path}, record", first)
            self._end_file()
        return None

    def _end_file(self) -> None:
        self.close()
        self._index += 1

    def close(self) -> None:
        """Closes the file that is open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def state(self) -> State:
        # The reader's own position: records are not counted to get there.
        return {"file": self._index, "at": self._reader.tell() if self._reader is not None else None}

    def restore(self, state: State) -> None:
        self._index = state["file"]
        if state["at"] is not None:
            self._reader = self._opened(self._paths[self._index])
            self._reader.seek(state["at"])


class TFRecordDataset(Dataset):
    """The records of TFRecord files, `bytes`. Their checksums are verified.

    Args:
        filenames: A file, several, or a dataset of file names.
        compression_type: "" or None, "GZIP" or "ZLIB".
        buffer_size: Ignored: files are read in chunks of the reader's own.
        num_parallel_reads: From how many files records are taken in turns; None or AUTOTUNE: one file after another.
        name: Ignored; accepted for TensorFlow's signature.

    Raises:
        DataNotFoundError: While iterating, if a file is missing.
        InputError: While iterating, if a record is broken; the message names file and record.

    Source: tf.data.TFRecordDataset.
    """

    def __init__(
        self,
        filenames: object,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        opened = functools.partial(tfrecord.open_tfrecord, compression_type=compression_type)
        self._set_plan(_records(filenames, opened, "TFRecords", _SCALAR_TEXT, num_parallel_reads))


class TextLineDataset(Dataset):
    r"""The lines of text files, `bytes` without the line's end ("\n" or "\r\n").

    Args:
        filenames: A file, several, or a dataset of file names.
        compression_type: "" or None, "GZIP" or "ZLIB".
        buffer_size: Ignored: files are read in chunks of the reader's own.
        num_parallel_reads: From how many files lines are taken in turns; None or AUTOTUNE: one file after another.
        name: Ignored; accepted for TensorFlow's signature.

    Source: tf.data.TextLineDataset.
    """

    def __init__(
        self,
        filenames: object,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        opened = functools.partial(records.open_text, compression_type=compression_type)
        self._set_plan(_records(filenames, opened, "TextLines", _SCALAR_TEXT, num_parallel_reads))


class FixedLengthRecordDataset(Dataset):
    """The records of files of records of one length, `bytes`.

    Args:
        filenames: A file, several, or a dataset of file names.
        record_bytes: The length of a record.
        header_bytes: How many bytes come before the first.
        footer_bytes: How many come after the last.
        buffer_size: Ignored: files are read in chunks of the reader's own.
        compression_type: "" or None, "GZIP" or "ZLIB".
        num_parallel_reads: From how many files records are taken in turns; None or AUTOTUNE: one file after another.
        name: Ignored; accepted for TensorFlow's signature.

    Source: tf.data.FixedLengthRecordDataset.
    """

    def __init__(
        self,
        filenames: object,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        opened = functools.partial(
            records.open_fixed,
            record_bytes=record_bytes,
            header_bytes=header_bytes or 0,
            footer_bytes=footer_bytes or 0,
            compression_type=compression_type,
        )
        self._set_plan(_records(filenames, opened, "FixedLengthRecords", _SCALAR_TEXT, num_parallel_reads))


class CsvDataset(Dataset):
    """The rows of CSV files, tuples with a scalar for each column.

    Args:
        filenames: A file, several, or a dataset of file names.
        record_defaults: For each column that is read, a default value, or a dtype if it must have a value.
        compression_type: "" or None, "GZIP" or "ZLIB".
        buffer_size: Ignored: files are read in chunks of the reader's own.
        header: Whether the first line of each file is passed over.
        field_delim: What separates fields.
        use_quote_delim: Whether double quotes enclose fields.
        na_value: A further text for a missing value.
        select_cols: The numbers of the columns to read; all by default.
        exclude_cols: The numbers of the columns to leave out.

    Raises:
        InputError: While iterating, if a value is wrong; the message names file, line and column.

    Source: tf.data.experimental.CsvDataset.
    """

    def __init__(
        self,
        filenames: object,
        record_defaults: Sequence[Any],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
    ) -> None:
        if exclude_cols is not None:
            count = len(record_defaults) + len(exclude_cols)
            # The file has as many columns as are read and excluded together.
            select_cols = [i for i in range(count) if i not in set(exclude_cols)]
        opened = functools.partial(
            csv.open_csv,
            record_defaults=record_defaults,
            compression_type=compression_type,
            header=header,
            field_delim=field_delim,
            use_quote_delim=use_quote_delim,
            na_value=na_value,
            select_cols=select_cols,
        )
        self._set_plan(_records(filenames, opened, "Csv", None, None))


class ParquetDataset(Dataset):
    """The rows of Parquet files, dicts with a value for each column. Needs the package `pyarrow`.

    Args:
        filenames: A file, several, or a dataset of file names.
        columns: The columns to read; all by default.
        name: Ignored; accepted for TensorFlow's signature.

    Raises:
        UnsupportedError: While iterating, if a column holds what no array can hold, or `pyarrow` is not installed.
    """

    def __init__(self, filenames: object, columns: Sequence[str] | None = None, name: str | None = None) -> None:
        self._set_plan(
            _records(filenames, functools.partial(parquet.open_parquet, columns=columns), "Parquet", None, None)
        )


class ArrayRecordDataset(Dataset):
    """The records of ArrayRecord files, `bytes`, with random access: a shuffle of all of them reads none of them.

    Needs the package `array_record`.

    Args:
        filenames: A file, or several.
        name: Ignored; accepted for TensorFlow's signature.

    Raises:
        DataNotFoundError: If a file is missing.
        InputError: If one is no ArrayRecord file.
    """

    def __init__(self, filenames: object, name: str | None = None) -> None:
        store = _ArrayRecordStore(file_names(filenames))
        self._set_plan(StoreSource(store, store.count, _SCALAR_TEXT, "ArrayRecords"))


class _ArrayRecordStore:
    """Random access to records by number."""

    is_vectorized = False

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._own = threading.local()
        self.count = len(self._records)

    @property
    def _records(self) -> array_record.ArrayRecords:
        # The library's reader is not thread-safe.
        if not hasattr(self._own, "records"):
            self._own.records = array_record.ArrayRecords(self._paths)
        return self._own.records

    def take(self, rows: Rows) -> Columns:
        return self._records.take(rows.tolist())

    def describe(self, row: int) -> str:
        return f"{', '.join(self._paths)}, record {row}"


def _records(filenames: object, opened: Callable[[str], Reader], kind: str, spec: PyTree, turns: int | None) -> Node:
    """Returns the plan that reads files: one after another, or several in turns."""
    cycle = 1 if turns in (None, AUTOTUNE) else _check.at_least(1, turns, "num_parallel_reads")

    def file_plan(name: Any) -> Node:
        return Files([name.decode()], opened, kind, spec)

    # Names of a dataset may not be known yet: they are read while iterating.
    if isinstance(filenames, Dataset):
        return Interleave(plan_of(filenames), file_plan, cycle, 1)
    names = file_names(filenames)
    if cycle == 1:
        return Files(names, opened, kind, spec)
    return Interleave(plan_of(Dataset.from_tensor_slices(np.array(names, object))), file_plan, cycle, 1)
