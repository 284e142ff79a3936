"""CSV files.

Source: tf.data.experimental.CsvDataset. As there, records follow RFC 4180: a quoted field may hold delimiters, newlines
and doubled quotes; an unquoted one may hold no quote; a lone carriage return ends a record too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._files.records import starts_of
from lockstep.data._files.stream import BadRecord, BlockReader, Stream, as_path, to_text_array
from lockstep.errors import ArgumentError, InputError

_CHUNK = 1 << 17
_LONGEST = 1 << 24  # of a record, so that a quote without end does not read the whole file again and again
_Rows = list[list[bytes] | None]  # `None` for a record whose quotes are wrong

_FIX_QUOTES = 'Double the quotes inside of a field ("") and quote the whole field, or pass use_quote_delim=False.'

_FIX_WIDTH = "Correct the line, record_defaults or field_delim, or choose columns with select_cols."

_DTYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64))

TEXT = np.dtype(object)

_TEXT_NAMES: tuple[Any, ...] = (object, TEXT, bytes, str, "string", "object", "bytes", "str")


def open_csv(
    path: object,
    record_defaults: Sequence[Any],
    compression_type: str | None = "",
    *,
    header: bool = False,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> CsvReader:
    """Opens a CSV file; a record is a tuple of a scalar per column.

    Args:
        path: The file.
        record_defaults: Per column what an empty field stands for, or, if it must not be empty, a dtype alone
            (`np.float32`, "int32", `bytes`, "string"). The columns are float32, float64, int32, int64 or text.
        compression_type: "" (or `None`), "GZIP" or "ZLIB".
        header: Whether the first record names the columns; it is skipped.
        field_delim: What separates fields: one ASCII character.
        use_quote_delim: Whether `"` quotes; else it is a character like others.
        na_value: What stands for an empty field too.
        select_cols: Which columns to read, increasing; `None` for all.

    Raises:
        ArgumentError: If an argument is wrong.
        DataNotFoundError: If there is no such file.
        InputError: If the header is missing.
    """
    # As TensorFlow: the splitter works on bytes.
    if len(field_delim.encode()) != 1 or field_delim in '"\r\n':
        raise ArgumentError(f"field_delim is one ASCII character that is no quote or newline, not {field_delim!r}.")
    columns = columns_of(record_defaults, select_cols, na_value)
    splitter = _Splitter(field_delim.encode(), use_quote_delim)
    return CsvReader(Stream(as_path(path), compression_type), columns, splitter, header, select_cols is not None)


class CsvReader(BlockReader):
    """A reader of a CSV file; records are a tuple of arrays of shape (k,)."""

    def __init__(
        self, stream: Stream, columns: list[Column], splitter: _Splitter, header: bool, selected: bool
    ) -> None:
        super().__init__(stream)
        self._columns = columns
        self._splitter = splitter
        self._header = header
        self._selected = selected
        self._lines: list[bytes] = []  # of the record that has been begun
        self._offset = 0  # where it begins
        if header:
            rows, starts, after = self.parse()
            if not rows:
                raise InputError(f"{self.path} has no header: it is empty. Pass header=False, or write the file again.")
            self._records, self._starts, self._next = rows[1:], starts[1:], after
            self._first = self.tell()

    def parse(self) -> tuple[Sequence[Any], Sequence[int], int]:
        """Returns the records that end in the next chunk that ends any."""
        while chunk := self._stream.read(_CHUNK):
            records = self._splitter.records(b"".join((*self._lines, chunk)))
            # The last piece may go on in the next chunk.
            self._lines = [records.pop()]
            if records:
                return self._rows(records)
            # A quote that is never closed: what has been read is taken for one broken record.
            if len(self._lines[0]) > _LONGEST:
                break
        last, self._lines = [line for line in self._lines if line], []
        return self._rows(last) if last else ((), (), self._offset)

    def forget(self, position: int) -> None:
        """Drops the record that has been begun."""
        self._lines, self._offset = [], position

    def reopen(self) -> CsvReader:
        """Returns another reader of the file."""
        stream = Stream(self.path, self._stream.compression)
        return CsvReader(stream, self._columns, self._splitter, self._header, self._selected)

    def convert(self, portion: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the columns of some rows."""
        least = self._columns[-1].index + 1
        # With select_cols further columns of the file do not matter.
        most = 1 << 62 if self._selected else least
        for index, row in enumerate(portion):
            if row is None:
                problem = "its quotes are wrong: a quoted field must be quoted as a whole, and end (within 16 MiB)"
                raise BadRecord(index, f"{self._where(index)} is broken: {problem}. {_FIX_QUOTES}")
            if not least <= len(row) <= most:
                wanted = f"at least {least} fields are" if self._selected else f"{least} fields are"
                problem = f"{wanted} expected, one per column; it has {len(row)}"
                raise BadRecord(index, f"{self._where(index)}: {problem}. {_FIX_WIDTH}")
        return tuple(self._convert_column(column, [row[column.index] for row in portion]) for column in self._columns)

    def _rows(self, records: list[bytes]) -> tuple[_Rows, list[int], int]:
        starts = starts_of(records, self._offset)
        self._offset = starts.pop()
        return [self._splitter.fields(record) for record in records], starts, self._offset

    def _convert_column(self, column: Column, fields: list[bytes]) -> Any:
        try:
            return column.convert(fields)
        except (ValueError, OverflowError) as error:
            index, reason = column.first_bad(fields, error)
            raise BadRecord(index, f"{self._where(index)}, column {column.index}: {reason}") from error

    def _where(self, index: int) -> str:
        position = self._starts[self._index + index]
        # Lines are counted only for an error: the file is read again up to the record.
        other = Stream(self.path, self._stream.compression)
        try:
            line = 1 + other.read(position).count(b"\n")
        finally:
            other.close()
        return f"{self.path}, line {line}"


class _Splitter:
    """Divides text into records, and records into fields."""

    def __init__(self, delimiter: bytes, quotes: bool) -> None:
        self._delimiter = delimiter
        self._quotes = quotes
        field = re.escape(delimiter)
        # RFC 4180: a quoted field with doubled quotes, or one without any quote.
        self._field = re.compile(rb'(?:"((?:[^"]|"")*)"|([^"%b]*))(%b|$)' % (field, field))

    def records(self, text: bytes) -> list[bytes]:
        """Returns the records with their line ends, and last, maybe empty, the begun part of another record."""
        lines = text.splitlines(keepends=True)
        rest = b"" if text.endswith(b"\n") else lines.pop()
        # The fast way: almost all files have few quotes or none.
        if not self._quotes or b'"' not in text:
            return [*lines, rest]
        # Lines that a quoted newline divides are joined, up to an even number of quotes.
        records: list[bytes] = []
        open_lines: list[bytes] = []
        quotes = 0
        for line in lines:
            quotes += line.count(b'"')
            open_lines.append(line)
            # Within an open quote the number of quotes so far is odd, whatever doubled quotes the field has.
            if quotes % 2 == 0:
                records.append(open_lines[0] if len(open_lines) == 1 else b"".join(open_lines))
                open_lines, quotes = [], 0
        return [*records, b"".join((*open_lines, rest))]

    def fields(self, record: bytes) -> list[bytes] | None:
        """Returns the fields of a record, or `None` if its quotes are wrong."""
        record = record.rstrip(b"\r\n") if record[-1:] in b"\r\n" else record
        if not self._quotes or b'"' not in record:
            return record.split(self._delimiter)
        fields: list[bytes] = []
        at, more = 0, True
        while more:
            match = self._field.match(record, at)
            # Neither a whole quoted field nor one without quotes: the record is wrong, not the file.
            if match is None:
                return None
            quoted, plain, end = match.groups()
            fields.append(plain if quoted is None else quoted.replace(b'""', b'"'))
            at, more = match.end(), bool(end)
        return fields


@dataclass(frozen=True)
class Column:
    """The field of a record with an index from 0, and its dtype.

    An empty field, or `na_value`, stands for `default`; with a default of `None` it must not be empty.
    """

    index: int
    dtype: np.dtype[Any]
    default: Any
    na_value: bytes

    def convert(self, fields: list[bytes]) -> np.ndarray[Any, np.dtype[Any]]:
        """Returns values of shape (k,); raises ValueError or OverflowError for a field without one."""
        empty: list[int] = []
        # Two scans in C; the loop runs only where something is empty.
        if b"" in fields or self.na_value in fields:
            empty = [index for index, field in enumerate(fields) if not field or field == self.na_value]
        if empty and self.default is None:
            raise ValueError("required")
        if self.dtype == TEXT:
            values = to_text_array(fields)
        else:
            fields = list(fields) if empty else fields
            for index in empty:
                # Any number: the default replaces it after the conversion of the whole column.
                fields[index] = b"0"
            # int() and float() of Python accept 1_000, TensorFlow does not.
            if b"_" in b"".join(fields):
                raise ValueError("Python's underscores are no digits")
            if self.dtype.kind == "i":
                values = np.array([int(field) for field in fields], self.dtype)
            else:
                # A number beyond float32 becomes inf, as in TensorFlow.
                with np.errstate(over="ignore"):
                    values = np.array([float(field) for field in fields], np.float64).astype(self.dtype)
        if empty:
            values[empty] = self.default
        return values

    def first_bad(self, fields: list[bytes], error: Exception) -> tuple[int, str]:
        """Returns the index of the first field that has no value, and why."""
        # One by one, only after the column as a whole has failed.
        for index, field in enumerate(fields):
            try:
                self.convert([field])
            except (ValueError, OverflowError):
                if not field or field == self.na_value:
                    return index, "the field is empty but required. Give the column a default in record_defaults."
                text = field.decode("utf-8", "backslashreplace")
                problem = f"{text!r} is no {self.dtype.name}. Correct it, or give the column another dtype in"
                return index, f"{problem} record_defaults."
        return 0, str(error)


def columns_of(record_defaults: Sequence[Any], select_cols: Sequence[int] | None, na_value: str) -> list[Column]:
    """Returns the columns that the arguments of `open_csv` describe."""
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
    if isinstance(default, (str, bytes)):
        # Not numpy's own type of bytes, which drops trailing zeros.
        return dtype, default.encode() if isinstance(default, str) else bytes(default)
    return dtype, default


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
