"""`make_csv_dataset`: batches of CSV files' columns by name, whose types are inferred."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TextIO

import numpy as np

from lockstep._types import PyTree
from lockstep.data import _check
from lockstep.data._dataset import Dataset
from lockstep.data._dataset_sources import file_names
from lockstep.data._file_datasets import CsvDataset
from lockstep.data._files.stream import matching_files
from lockstep.data._options import AUTOTUNE
from lockstep.errors import ArgumentError, DataNotFoundError

# From the narrowest to the one that holds everything.
_TYPES: tuple[Any, ...] = (np.int32, np.int64, np.float32, np.float64, bytes)


def make_csv_dataset(
    file_pattern: PyTree,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[int] | Sequence[str] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    """Returns a dataset of batches of rows of CSV files, OrderedDicts of an array for each column.

    Args:
        file_pattern: A file or a pattern, or several.
        batch_size: Number of rows.
        column_names: The names of all columns of the files; by default those in the first line of each file.
        column_defaults: For each column that is read a default value, or a dtype if a value is required. By default
            the types are inferred, and an empty field is 0, or empty text.
        label_name: The column that is no feature: elements are pairs of features and labels then.
        select_columns: The columns to read, by name or number; all by default.
        field_delim: What separates fields.
        use_quote_delim: Whether double quotes enclose fields.
        na_value: A further text for a missing value.
        header: Whether the first line of each file has names.
        num_epochs: How often the rows are repeated; endlessly by default, and then without a smaller last batch.
        shuffle: Shuffles files, and rows.
        shuffle_buffer_size: Number of rows of which the next one is chosen.
        shuffle_seed: Seed of the order.
        prefetch_buffer_size: Number of batches that wait at most; by default as for `prefetch(AUTOTUNE)`.
        num_parallel_reads: From how many files rows are taken in turns; one by default.
        sloppy: Permits another order, which is never needed.
        num_rows_for_inference: How many rows of the files the types are inferred from; `None` for all.
        compression_type: "" or None, "GZIP" or "ZLIB"; files whose first rows are looked at must not be "ZLIB".
        ignore_errors: Drops rows that cannot be read.
        encoding: Of names, and of rows for inference. Text comes as the bytes of the file.

    Raises:
        ArgumentError: If an argument is wrong, files have other names, or names come twice.
        DataNotFoundError: If no file matches.
        InputError: While iterating, if a row is wrong; the message names file and line.

    Source: tf.data.experimental.make_csv_dataset.
    """
    size = _check.at_least(1, batch_size, "batch_size")
    files = _csv_files(file_pattern)
    if column_names is None or column_defaults is None:
        probe = _Probe(files, compression_type, encoding, field_delim, use_quote_delim, header)
        names = probe.names() if column_names is None else list(column_names)
    else:
        probe, names = None, list(column_names)
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ArgumentError(
            "Either `column_names` argument or CSV header row contains duplicate column names: "
            f"{', '.join(map(repr, repeated))}. Give each column a name of its own with column_names."
        )
    columns = None if select_columns is None else _column_numbers(select_columns, names)
    if column_defaults is not None or probe is None:
        defaults = list(column_defaults or ())
    else:
        limit = num_rows_for_inference
        defaults = probe.defaults(len(names), na_value, range(len(names)) if columns is None else columns, limit)
    if columns is not None:
        if len(defaults) != len(columns):
            raise ArgumentError(
                "If specified, `column_defaults` and `select_columns` must have the same length: `column_defaults` "
                f"has length {len(defaults)}, `select_columns` has length {len(columns)}."
            )
        names = [names[i] for i in columns]
    if label_name is not None and label_name not in names:
        raise ArgumentError(f"`label_name` provided must be one of the columns: {names}. Received: {label_name}.")

    def rows_of(file: Any) -> Dataset:
        rows = CsvDataset(
            file,
            defaults,
            compression_type,
            header=header,
            field_delim=field_delim,
            use_quote_delim=use_quote_delim,
            na_value=na_value,
            select_cols=columns,
        )
        return rows.ignore_errors() if ignore_errors else rows

    def named(*values: Any) -> Any:
        features = OrderedDict(zip(names, values, strict=True))
        return features if label_name is None else (features, features.pop(label_name))

    dataset = Dataset.from_tensor_slices(np.array(files, object))
    dataset = dataset.shuffle(len(files), shuffle_seed) if shuffle else dataset
    turns = 1 if num_parallel_reads is None else num_parallel_reads
    dataset = dataset.interleave(rows_of, None if turns == AUTOTUNE else turns, 1)
    dataset = shuffle_and_repeat(dataset, shuffle, shuffle_buffer_size, shuffle_seed, num_epochs)
    ahead = AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size
    return dataset.batch(size, drop_remainder=num_epochs is None).map(named).prefetch(ahead)


def shuffle_and_repeat(dataset: Dataset, shuffle: bool, size: int, seed: int | None, epochs: int | None) -> Dataset:
    """Returns a dataset shuffled, if `shuffle` is true, and repeated, each pass in an order of its own."""
    dataset = dataset.shuffle(size, seed) if shuffle else dataset
    return dataset if epochs == 1 else dataset.repeat(epochs)


def _csv_files(pattern: PyTree) -> list[str]:
    try:
        return matching_files(file_names(pattern))
    except DataNotFoundError as error:
        raise NoMatchingFileError(str(error)) from None


class NoMatchingFileError(DataNotFoundError, ValueError):
    """A search for files that none of which exists; TensorFlow raises a `ValueError`."""


def _column_numbers(chosen: Sequence[int] | Sequence[str], names: list[str]) -> list[int]:
    """Returns the numbers of columns given by name or number, in their order."""
    numbers: list[int] = []
    for column in chosen:
        if isinstance(column, str):
            if column not in names:
                raise ArgumentError(
                    f"`select_columns` must hold names of columns, which are {names}. Received: {column!r}."
                )
            numbers.append(names.index(column))
            continue
        number = _check.integer(column, "Each of `select_columns`")
        if not 0 <= number < len(names):
            raise ArgumentError(
                f"`select_columns` must hold numbers from 0 to {len(names) - 1}, or names. Received: {number}."
            )
        numbers.append(number)
    if len(set(numbers)) != len(numbers):
        raise ArgumentError(f"`select_columns` must name each column once. Received: {list(chosen)}.")
    return sorted(numbers)


class _Probe:
    """A look at the first rows of files: the names, and the types of what is in them."""

    def __init__(
        self, files: list[str], compression: str | None, encoding: str, delimiter: str, quotes: bool, header: bool
    ) -> None:
        if compression not in (None, "", "GZIP"):
            raise ArgumentError(
                "Files whose names or types of columns are to be found must be plain or GZIP. Received: "
                f"compression_type={compression!r}. Give column_names and column_defaults."
            )
        self._files = files
        self._open: Callable[..., AbstractContextManager[TextIO]] = gzip.open if compression == "GZIP" else open
        self._encoding = encoding
        self._form: dict[str, Any] = {"delimiter": delimiter}
        self._form["quoting"] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
        self._header = header

    def _rows(self, file: str) -> Iterator[list[str]]:
        with self._open(file, "rt", encoding=self._encoding, newline="") as lines:
            yield from csv.reader(lines, **self._form)

    def names(self) -> list[str]:
        """Returns the names in the first line, which all files must share."""
        if not self._header:
            raise ArgumentError(
                "Expected `column_names` or `header` arguments. Neither is provided. Give column_names, or header=True."
            )
        first: list[str] | None = None
        for file in self._files:
            names = next(self._rows(file), None)
            if names is None:
                raise ArgumentError(f"Failed when reading the header line of {file}. Is it an empty file?")
            if first is not None and names != first:
                raise ArgumentError(
                    "All input CSV files should have the same column names in the header row. File "
                    f"{file} has {names} instead of {first}. Read it by itself, or give column_names."
                )
            first = names
        return first or []

    def defaults(self, count: int, na_value: str, columns: Sequence[int], limit: int | None) -> list[Any]:
        """Returns the default values of some of `count` columns, by the narrowest types that hold their fields."""
        types = [0] * len(columns)
        found = [False] * len(columns)
        for row in itertools.islice(self._checked_rows(count), limit):
            for i, column in enumerate(columns):
                # A field without a value says nothing of the type.
                if row[column] not in ("", na_value):
                    types[i] = max(types[i], _narrowest(row[column]))
                    found[i] = True
        chosen = [_TYPES[kind] if seen else bytes for kind, seen in zip(types, found, strict=True)]
        return [b"" if kind is bytes else kind(0) for kind in chosen]

    def _checked_rows(self, count: int) -> Iterator[list[str]]:
        for file in self._files:
            rows = self._rows(file)
            if self._header:
                next(rows, None)
            for number, row in enumerate(rows, 2 if self._header else 1):
                if len(row) != count:
                    raise ArgumentError(
                        f"Problem inferring types: CSV row {number} of {file} has {len(row)} number of fields. "
                        f"Expected: {count}. Correct the row, or give column_defaults."
                    )
                yield row


def _narrowest(text: str) -> int:
    """Returns the index of the narrowest type that holds a field."""
    for kind, is_one in enumerate(_IS_ONE):
        try:
            if is_one(text):
                return kind
        except (ValueError, OverflowError):
            continue
    return len(_TYPES) - 1


def _is_float(text: str, dtype: Any) -> bool:
    # What only 64 bits hold is inf in 32; of inf and NaN as text TensorFlow makes text.
    with np.errstate(over="ignore"):
        return bool(dtype(text) < np.inf)


_IS_ONE: tuple[Callable[[str], bool], ...] = (
    lambda text: -(2**31) <= int(text) < 2**31,
    lambda text: -(2**63) <= int(text) < 2**63,
    lambda text: _is_float(text, np.float32),
    lambda text: _is_float(text, np.float64),
)
