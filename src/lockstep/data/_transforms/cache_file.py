"""The files of `cache(filename)`: one directory that appears when it is complete.

Each array of the elements is a file of its rows, back to back. Rows of different shapes, and text, have a second file
with where they begin, and of which shape they are. A description lists files, dtypes, sizes and checksums.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from lockstep._nest import Packed, unpack
from lockstep._types import JSON, ArrayLike
from lockstep.data import _columns
from lockstep.data._columns import Column, Columns, Ragged, Rows
from lockstep.data._structure import TEXT, is_named_tuple
from lockstep.errors import InputError

_DESCRIPTION = "cache.json"
_FORMAT = "lockstep cache 1"
_NAMED = "named tuple"
_UNTOLD = (_NAMED, '"dict"')
# Of the files that are being written by this process.
_numbers = itertools.count()


class CacheFile:
    """Elements on disk, in a directory, which need not exist.

    `structure` returns the structure of the elements; it is asked only where a file cannot tell it.
    """

    def __init__(self, path: Path, structure: Callable[[], Any]) -> None:
        self._path = path
        self._known_structure = structure
        # Beside the target, because a rename is atomic only within a file system; the process and a number keep writers
        # apart.
        self._staging = path.with_name(f"{path.name}.{os.getpid()}.{next(_numbers)}.partial")
        self._writers: list[_Writer] = []
        self._readers: list[_Reader] = []
        self._structure: Any = None
        # One thread may add what others read.
        self._lock = threading.RLock()
        self.count = 0
        # What a pass that never ended leaves behind goes with the dataset, or with the process.
        self._open: list[BinaryIO] = []
        weakref.finalize(self, _abandon, self._open, self._staging)
        self.is_complete = path.exists()
        if self.is_complete:
            self._from_description()

    def append(self, columns: Columns) -> None:
        """Appends elements."""
        leaves, structure = jax.tree.flatten(columns)
        with self._lock:
            if not self._writers:
                self._staging.mkdir(parents=True, exist_ok=True)
                self._structure = structure
                self._writers = [_Writer(self._staging / f"{i}") for i in range(len(leaves))]
                self._open += [writer.data for writer in self._writers]
            for writer, leaf in zip(self._writers, leaves, strict=True):
                writer.append(leaf)
            self.count += _columns.length(columns)
            self._readers = []

    def finish(self) -> None:
        """Publishes the elements in one step. If another dataset was quicker, its files stay."""
        with self._lock:
            if not self._writers:
                self._staging.mkdir(parents=True, exist_ok=True)
            arrays = [writer.finish() for writer in self._writers]
            structure = self._structure
            # Numbers stand for the leaves.
            shown = None if structure is None else to_json(structure.unflatten(range(structure.num_leaves)))
            description = {"format": _FORMAT, "count": self.count, "structure": shown, "arrays": arrays}
            (self._staging / _DESCRIPTION).write_text(json.dumps(description, indent=1))
            try:
                # A reader sees all files or none.
                self._staging.rename(self._path)
            # The directory is there: another process finished first, with the same elements.
            except OSError:
                shutil.rmtree(self._staging)
            self._writers, self._readers = [], []
            self.is_complete = True

    def take(self, rows: Rows) -> Columns:
        """Reads elements."""
        with self._lock:
            if not self._readers:
                self._readers = [writer.reader() for writer in self._writers]
            if not self._readers:
                self._from_description()
            readers = self._readers
        return self._structure.unflatten([reader.take(rows) for reader in readers])

    def _from_description(self) -> None:
        try:
            description = json.loads((self._path / _DESCRIPTION).read_text())
            if description["format"] != _FORMAT:
                raise ValueError(f"its format is {description['format']!r}")
            self.count = int(description["count"])
            # Types cannot be read from a file, and those with "dict" are older, and do not tell the order of keys.
            if self._structure is None and any(kind in json.dumps(description["structure"]) for kind in _UNTOLD):
                self._structure = self._known_structure()
            self._structure = self._structure or jax.tree.structure(from_json(description["structure"]))
            self._readers = [_Reader(self._path / f"{i}", d, check=True) for i, d in enumerate(description["arrays"])]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self._path} must be what cache(filename) wrote. Received: {type(error).__name__}: {error}. Remove "
                "it, and it is written again."
            ) from error


class _Writer:
    """A writer of one leaf's rows to a data file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.data: BinaryIO = path.with_suffix(".data").open("wb+")
        self._index: list[tuple[int, ...]] = []
        self._dtype: Any = None
        self._shape: tuple[int, ...] | None = None
        self._uniform = True
        self._size = 0
        self._count = 0
        self._sum = 0

    def append(self, column: Column) -> None:
        for row in column.values if isinstance(column, Ragged) else column:
            self._append_row(row)

    def _append_row(self, row: ArrayLike) -> None:
        text = isinstance(row, bytes) or getattr(row, "dtype", None) == TEXT
        content = _pack_row(row) if text else np.ascontiguousarray(row).tobytes()
        dtype = "text" if isinstance(row, bytes) or text else str(row.dtype)
        if self._dtype not in (None, dtype):
            raise InputError(f"Cached elements must have one dtype. Received: {self._dtype} and {dtype}.")
        self._dtype = dtype
        shape = np.shape(row)
        self._uniform = self._uniform and not text and self._shape in (None, shape)
        self._shape = shape
        self._index.append((self._size, len(content), *shape))
        self.data.write(content)
        self._sum = zlib.crc32(content, self._sum)
        self._size += len(content)
        self._count += 1

    def description(self) -> dict[str, Any]:
        # An index of each row would be larger than small rows themselves.
        uniform = {"shape": self._shape} if self._uniform else {"index": self._index}
        return {"dtype": self._dtype, "count": self._count, "bytes": self._size, "crc32": self._sum, **uniform}

    def reader(self) -> _Reader:
        self.data.flush()
        return _Reader(self._path, self.description(), check=False)

    def finish(self) -> dict[str, Any]:
        self.data.flush()
        # Before the rename: after a crash the directory must not hold files that are not on the disk.
        os.fsync(self.data.fileno())
        self.data.close()
        return self.description()


class _Reader:
    """Random access to one leaf's rows in a data file."""

    def __init__(self, path: Path, description: dict[str, Any], check: bool) -> None:
        self._dtype = description["dtype"]
        self._shape = description.get("shape")
        self._index = description.get("index")
        data = path.with_suffix(".data")
        size = int(description["bytes"])
        # Once, on opening a finished cache; what this process has written is not read back.
        if check:
            _check(data, size, description["crc32"])
        # A mapped file is shared by the processes of a machine, and memory is the system's to reclaim.
        self._bytes = np.memmap(data, np.uint8, "r", shape=(size,)) if size else np.empty(0, np.uint8)
        self._count = int(description["count"])

    def take(self, rows: Rows) -> Any:
        if self._index is None:
            whole = self._bytes.view(np.dtype(self._dtype)).reshape(self._count, *(self._shape or ()))
            return np.asarray(_columns.take(whole, rows))
        return _columns.column([self._row(self._index[row]) for row in rows])

    def _row(self, entry: Any) -> Any:
        start, length, *shape = entry
        content = self._bytes[start : start + length].tobytes()
        if self._dtype == "text":
            return _unpack_row(content, shape)
        return np.frombuffer(content, np.dtype(self._dtype)).reshape(shape)


def _abandon(files: list[BinaryIO], path: Path) -> None:
    for file in files:
        file.close()
    shutil.rmtree(path, ignore_errors=True)


def _check(path: Path, size: int, expected: int) -> None:
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {size}")
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            checksum = zlib.crc32(chunk, checksum)
    if checksum != expected:
        raise ValueError(f"{path.name} has a wrong checksum")


def _pack_row(row: ArrayLike) -> bytes:
    """Packs text: of an array, each item with its length before it."""
    if isinstance(row, bytes):
        return row
    return b"".join(len(v).to_bytes(8, "little") + v for v in row.ravel())


def _unpack_row(content: bytes, shape: list[int]) -> Any:
    if not shape:
        return content
    pieces: list[bytes] = []
    at = 0
    while at < len(content):
        length = int.from_bytes(content[at : at + 8], "little")
        pieces.append(content[at + 8 : at + 8 + length])
        at += 8 + length
    result = np.empty(shape, object)
    result.ravel()[:] = pieces
    return result


def to_json(value: JSON) -> Any:
    """Returns a structure of numbers as a JSON value; types of named tuples and of other mappings are not in it."""
    if is_named_tuple(value):
        return {_NAMED: [to_json(v) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [to_json(v) for v in value]}
    if isinstance(value, dict):
        items = [[k, to_json(v)] for k, v in value.items()]
        return {"mapping": items} if type(unpack(value)) is dict else {_NAMED: items}
    return value


def from_json(value: JSON) -> Any:
    """Returns the structure that `to_json` received; raises `KeyError` if it holds types that a file cannot tell."""
    if isinstance(value, dict) and "tuple" in value:
        return tuple(from_json(v) for v in value["tuple"])
    if isinstance(value, dict):
        return Packed((k, from_json(v)) for k, v in value["mapping"])
    return value
