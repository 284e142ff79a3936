"""CSV files, typed column by column.

Source: tf.data.experimental.CsvDataset. As there, records follow RFC 4180: a quoted field may hold delimiters, newlines
and doubled quotes; an unquoted one may hold no quote; a lone carriage return ends a record too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lockstep.data._files.block_reader import BadRecord, BlockReader
from lockstep.data._files.csv_columns import Column, columns_of
from lockstep.data._files.stream import Stream, as_path
from lockstep.data._files.text import starts_of
from lockstep.errors import ArgumentError, InputError

_CHUNK = 1 << 17
_LONGEST = 1 << 24  # of a record, so that a quote without end does not read the whole file again and again
_Rows = list[list[bytes] | None]  # `None` for a record whose quotes are wrong


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
            self._skip_header()

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
        self._check_widths(portion)
        return tuple(self._convert_column(column, [row[column.index] for row in portion]) for column in self._columns)

    def _rows(self, records: list[bytes]) -> tuple[_Rows, list[int], int]:
        starts = starts_of(records, self._offset)
        self._offset = starts.pop()
        return [self._splitter.fields(record) for record in records], starts, self._offset

    def _skip_header(self) -> None:
        rows, starts, after = self.parse()
        if not rows:
            raise InputError(f"{self.path} has no header: it is empty. Pass header=False, or write the file again.")
        self._records, self._starts, self._next = rows[1:], starts[1:], after
        self._first = self.tell()

    def _check_widths(self, rows: Sequence[list[bytes] | None]) -> None:
        least = self._columns[-1].index + 1
        # With select_cols further columns of the file do not matter.
        most = 1 << 62 if self._selected else least
        for index, row in enumerate(rows):
            if row is None:
                problem = "its quotes are wrong: a quoted field must be quoted as a whole, and end (within 16 MiB)"
                raise BadRecord(index, f"{self._where(index)} is broken: {problem}. {_FIX_QUOTES}")
            if not least <= len(row) <= most:
                raise BadRecord(index, self._width_message(index, len(row), least))

    def _width_message(self, index: int, found: int, least: int) -> str:
        wanted = f"at least {least} fields are" if self._selected else f"{least} fields are"
        return f"{self._where(index)}: {wanted} expected, one per column; it has {found}. {_FIX_WIDTH}"

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


_FIX_QUOTES = 'Double the quotes inside of a field ("") and quote the whole field, or pass use_quote_delim=False.'
_FIX_WIDTH = "Correct the line, record_defaults or field_delim, or choose columns with select_cols."


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
        return _join_quoted_lines(lines, rest)

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


def _join_quoted_lines(lines: list[bytes], rest: bytes) -> list[bytes]:
    """Joins lines that a quoted newline divides: lines up to an even number of quotes."""
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
