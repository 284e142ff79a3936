"""Whole files, and decoding of bytes and CSV."""

# ruff: noqa: D417

from __future__ import annotations

import base64
import csv
import glob
import os
from pathlib import Path
from typing import Any

import numpy as np
from jax.core import Tracer

from lockstep import _decoded_size
from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._ops import named
from lockstep.compat.tensorflow._ops.strings import map_text
from lockstep.compat.tensorflow._tensor import HostTensor, as_host, constant_array, to_text
from lockstep.compat.tensorflow._types import DTypeLike, PathLike
from lockstep.errors import ArgumentError, DataNotFoundError, InputError

__all__ = ["decode_base64", "decode_compressed", "decode_csv", "decode_raw", "encode_base64", "matching_files"]
__all__ += ["read_file", "write_file"]


def path_of(name: Any) -> str:
    """Returns a path out of text: `str`, `bytes`, a path, or a tensor of one of them."""
    text = name.item() if isinstance(name, np.ndarray) and name.ndim == 0 else name
    if isinstance(text, bytes):
        return text.decode()
    # Path(tracer) would say nothing of the cause.
    if isinstance(name, Tracer) or (
        isinstance(name, np.ndarray) and name.dtype != object and name.dtype.kind not in "SU"
    ):
        raise ArgumentError(f"A file name must be text. Received: {name!r}.")
    if isinstance(name, np.ndarray):
        name = to_text(name).item()
    return name.decode() if isinstance(name, bytes) else str(Path(name))


def read_file(filename: PathLike, name: str | None = None) -> Any:
    """Returns the content of a file, as text.

    Raises:
        DataNotFoundError: If there is no such file.

    Source: tf.io.read_file.
    """
    path = path_of(filename)
    try:
        return as_host(_read(path))
    except FileNotFoundError:
        raise DataNotFoundError(f"The file must exist. Received: {path}.") from None


def _read(path: str) -> bytes:
    """Reads a file with four system calls: Python's own, with a buffer, takes ten.

    Threads that read leave and take Python's lock at each. Pictures of 30 kB came 5 % faster on two threads.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        size = os.fstat(descriptor).st_size
        content = os.read(descriptor, size)
        if size and len(content) == size:
            return content
        # Pipes and files of /proc have no size, and one call reads at most 2 GiB.
        parts = [content]
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def write_file(filename: PathLike, contents: Tensor, name: str | None = None) -> None:
    """Writes a file; makes its directory if need be. Source: tf.io.write_file."""
    path = Path(path_of(filename))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_text(contents).item())


def decode_raw(
    input_bytes: Tensor,
    out_type: DTypeLike,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> Any:
    """Reads bytes as numbers of a type, one more dimension; of `fixed_length` bytes, cut or filled up with zeros.

    Raises:
        InputError: If the bytes are no whole number of elements, or differ in length.

    Source: tf.io.decode_raw.
    """
    kind = np.dtype(as_dtype(out_type).dtype).newbyteorder("<" if little_endian else ">")
    texts = to_text(input_bytes)
    # TensorFlow's rule: cut, or filled with zero bytes.
    rows = [r if fixed_length is None else r[:fixed_length].ljust(fixed_length, b"\0") for r in texts.ravel()]
    # Rows of one tensor are as long as each other.
    if len({len(r) for r in rows}) > 1 or any(len(r) % kind.itemsize for r in rows):
        raise InputError(
            f"Bytes of {kind.itemsize} per element must come in whole elements, as many in each text. Received lengths "
            f"{sorted({len(r) for r in rows})}."
        )
    # One copy for all rows; astype brings the byte order of this machine.
    numbers = np.frombuffer(b"".join(rows), kind).astype(as_dtype(out_type).dtype)
    return as_host(numbers.reshape(*np.shape(texts), -1))


def decode_compressed(bytes: Tensor, compression_type: str = "", name: str | None = None) -> HostTensor:
    """Unpacks bytes: "" (none), "ZLIB" or "GZIP". Source: tf.io.decode_compressed."""
    if compression_type == "":
        return map_text(lambda content: content, bytes)
    if compression_type not in _decoded_size.WINDOW_BITS:
        raise ArgumentError(f'compression_type must be "", "ZLIB" or "GZIP". Received: {compression_type!r}.')
    bits = _decoded_size.WINDOW_BITS[compression_type]
    return map_text(lambda content: _decoded_size.inflate(content, bits, "bytes of decode_compressed"), bytes)


def decode_csv(
    records: Any,
    record_defaults: Any,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Any = None,
    name: str | None = None,
) -> list[Any]:
    """Reads lines of fields, one tensor per column.

    Args:
        records: Lines, of any shape.
        record_defaults: For each column its type, or the value of an empty field, which gives the type; an empty list
            or an empty tensor means that there must be a value.
        field_delim: The character between fields.
        use_quote_delim: Whether double quotes may enclose a field.
        na_value: What stands for no value, beside nothing.
        select_cols: Which columns are read, in rising order.

    Raises:
        InputError: If a line has another number of fields, or one that is no value of its type.

    Source: tf.io.decode_csv.
    """
    lines = to_text(records)
    rules = [_rule(d) for d in record_defaults]
    quoting = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    rows = [
        # A record is one line for TensorFlow; an empty line is one empty field.
        next(csv.reader([b.decode().rstrip("\r\n")], delimiter=field_delim, quoting=quoting), [""])
        for b in lines.ravel()
    ]
    rows = rows if select_cols is None else [[_column(r, c) for c in select_cols] for r in rows]
    for row in rows:
        if len(row) != len(rules):
            raise InputError(f"A line must have {len(rules)} fields. Received {len(row)}: {field_delim.join(row)!r}.")
    columns = [[_field(r[i], rule, na_value) for r in rows] for i, rule in enumerate(rules)]
    return [
        as_host((to_text(c) if kind.dtype == object else np.array(c, kind.dtype)).reshape(np.shape(lines)))
        for c, (kind, _) in zip(columns, rules, strict=True)
    ]


def _column(row: list[str], column: int) -> str:
    if column >= len(row):
        raise InputError(f"A line must have a column {column}. Received one of {len(row)} fields.")
    return row[column]


def _rule(default: Any) -> tuple[Any, Any]:
    """Returns the type of a column and its default, `None` if it has none."""
    # A type alone: the column has no default, and must have a value.
    if hasattr(default, "is_floating") or isinstance(default, (type, np.dtype)):
        return as_dtype(default), None
    default_array = np.atleast_1d(constant_array(default))
    return as_dtype(default_array.dtype), default_array[0] if default_array.size else None


def _field(value: str, rule: tuple[Any, Any], na_value: str) -> Any:
    kind, default = rule
    if value in ("", na_value):
        if default is None:
            raise InputError(
                f"A field must have a value: its column of type {kind.name} has no default. Received: {value!r}."
            )
        return default
    if kind.dtype == object:
        return value.encode()
    try:
        return int(value) if kind.is_integer else float(value)
    except ValueError:
        raise InputError(f"A field must be a number of type {kind.name}. Received: {value!r}.") from None


def matching_files(pattern: Any, name: str | None = None) -> Any:
    """Returns the names of files that match patterns, sorted. Source: tf.io.matching_files."""
    # A set: patterns may match the same file.
    names = {p for part in np.atleast_1d(to_text(pattern)).ravel() for p in glob.glob(part.decode())}
    return as_host(to_text(sorted(names)).reshape(-1))


def encode_base64(input: Tensor, pad: bool = False, name: str | None = None) -> Tensor:
    """Writes bytes as web-safe base64. Source: tf.io.encode_base64."""
    return map_text(lambda b: base64.urlsafe_b64encode(b).rstrip(b"" if pad else b"="), input)


def decode_base64(input: Tensor, name: str | None = None) -> Tensor:
    """Reads web-safe base64. Source: tf.io.decode_base64."""
    return map_text(lambda b: base64.urlsafe_b64decode(b + b"=" * (-len(b) % 4)), input)


named.record_names(globals())
