"""Datasets of the records of files."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep._types import PyTree
from lockstep.data import _check
from lockstep.data._columns import Columns, Rows
from lockstep.data._dataset import Dataset
from lockstep.data._dataset_base import plan_of
from lockstep.data._dataset_sources import file_names
from lockstep.data._files import array_record, csv, parquet, records, tfrecord
from lockstep.data._options import AUTOTUNE
from lockstep.data._plan import Node
from lockstep.data._record_files import Files
from lockstep.data._sources import StoreSource
from lockstep.data._spec import TensorSpec
from lockstep.data._structure import TEXT
from lockstep.data._transforms.interleave import Interleave
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.data._files.stream import Reader

_SCALAR_TEXT = TensorSpec((), TEXT)


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
        if exclude_cols is not None and select_cols is not None:
            raise ArgumentError(
                "Either select_cols or exclude_cols says which columns are read. Received: both. Leave one out."
            )
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
        columns = csv.columns_of(record_defaults, select_cols, na_value)
        spec = tuple(TensorSpec((), column.dtype) for column in columns)
        self._set_plan(_records(filenames, opened, "Csv", spec, None))


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
