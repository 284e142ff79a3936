"""Elements in a directory: files of records, and a description of what they hold.

    dataset.json        the format, the compression, the structure and spec of the elements, and their number by file
    00000.tfrecord      a shard: a TFRecord file, of whose records each holds an element: its arrays as TensorProtos,
                        each after its length in 8 bytes

The directory appears when it is complete.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import struct
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lockstep._types import ArrayLike, Element, PyTree, PyTreeDef
from lockstep.data import _columns, _spec
from lockstep.data._columns import Columns
from lockstep.data._example.tensor import parse_tensor, serialize_tensor
from lockstep.data._files.stream import Reader
from lockstep.data._files.tfrecord import TFRecordWriter, open_tfrecord
from lockstep.data._sources import row_spec
from lockstep.data._structure import TEXT
from lockstep.data._transforms.cache_file import from_json, to_json
from lockstep.errors import ArgumentError, DataNotFoundError, InputError

_DESCRIPTION = "dataset.json"
_FORMAT = "lockstep dataset 1"
_LENGTH = struct.Struct("<Q")
# Of the directories that are being written by this process.
_numbers = itertools.count()


@dataclass(frozen=True)
class StoredElements:
    """Elements in a directory.

    Attributes:
        path: The directory.
        compression: "" or "GZIP".
        spec: What the elements look like.
        counts: The number of elements of each shard, by number.
    """

    path: Path
    compression: str
    spec: PyTree
    counts: dict[int, int]

    @property
    def files(self) -> list[str]:
        """Returns the files, in the order of the shards."""
        return [str(self.path / _file_name(shard)) for shard in sorted(self.counts)]

    def open(self, path: str) -> Reader:
        """Returns a reader of one of the files."""
        leaves, structure = jax.tree.flatten(self.spec)
        return _ElementReader(open_tfrecord(path, self.compression), structure, [leaf.dtype for leaf in leaves])


def is_stored(path: Path) -> bool:
    """Returns whether there are elements at a path."""
    return (path / _DESCRIPTION).exists()


def read_description(path: Path, spec: PyTree = None) -> StoredElements:
    """Returns the elements in a directory.

    Args:
        path: The directory.
        spec: What they look like; needed where elements hold named tuples, whose types no file holds.

    Raises:
        DataNotFoundError: If there is nothing.
        ArgumentError: If `spec` is of other elements.
        InputError: If the directory is damaged, or was written by something else.
    """
    try:
        description = json.loads((path / _DESCRIPTION).read_text())
        if description["format"] != _FORMAT:
            raise ValueError(f"its format is {description['format']!r}")
        saved = [_spec.TensorSpec(shape, dtype) for shape, dtype in description["spec"]]
        counts = {int(shard): int(count) for shard, count in description["counts"].items()}
        compression = str(description["compression"])
        if spec is None:
            spec = jax.tree.structure(from_json(description["structure"])).unflatten(saved)
    except FileNotFoundError:
        raise DataNotFoundError(
            f"{path} must be a directory that Dataset.save or snapshot wrote. Received: one without {_DESCRIPTION}. "
            "Check the path; what TensorFlow saved is read by TensorFlow alone: save it again here."
        ) from None
    except KeyError as error:
        raise ArgumentError(
            f"The elements in {path} hold named tuples, or mappings other than dicts, whose types a file cannot tell "
            f"({error}). Pass element_spec."
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is no dataset that can be read: {error}. Save it again.") from error
    given = jax.tree.leaves(spec)
    if len(given) != len(saved) or any(
        g.dtype != s.dtype or not _spec.is_wider(g, s) for g, s in zip(given, saved, strict=True)
    ):
        raise ArgumentError(
            f"element_spec must be that of the elements in {path}, {saved}. Received: {spec}. Leave it out, to read "
            "what is there."
        )
    return StoredElements(path, compression, spec, counts)


class ElementWriter:
    """A writer of elements to a directory, which appears when `finish` is called.

    Args:
        path: The directory. One that is empty, or holds elements, is replaced.
        compression: "" or "GZIP".

    Raises:
        ArgumentError: If the path holds something else, or cannot be written.
    """

    def __init__(self, path: Path, compression: str) -> None:
        if path.exists() and not is_stored(path) and (not path.is_dir() or any(path.iterdir())):
            raise ArgumentError(
                f"A dataset is saved in a directory of its own. Received: {path}, which holds something else. Choose "
                "another, or remove it."
            )
        self._path = path
        self._compression = compression
        # Beside the target, because a rename is atomic only within a file system.
        self._staging = path.with_name(f"{path.name}.{os.getpid()}.{next(_numbers)}.partial")
        try:
            self._staging.mkdir(parents=True)
        except OSError as error:
            raise ArgumentError(f"{path} cannot be written: {error}. Choose another path.") from error
        self._writers: dict[int, TFRecordWriter] = {}
        self._counts: dict[int, int] = {}
        self._spec: Any = None
        # What is never finished goes with this object, or with the process.
        self._abandon = weakref.finalize(self, _abandon, self._writers, self._staging)

    def append(self, columns: Columns, shards: Sequence[int] | None = None) -> None:
        """Appends elements, each to the shard of its number; all to one by default."""
        spec = jax.tree.map(row_spec, columns)
        self._spec = spec if self._spec is None else _spec.common_spec([self._spec, spec], may_be_narrowed=False)
        for i, element in enumerate(_columns.elements(columns)):
            shard = 0 if shards is None else shards[i]
            if shard not in self._writers:
                options = self._compression or None
                self._writers[shard] = TFRecordWriter(self._staging / _file_name(shard), options)
                self._counts[shard] = 0
            self._writers[shard].write(_encode(element))
            self._counts[shard] += 1

    def finish(self, spec: PyTree, replace: bool) -> None:
        """Publishes the elements in one step; what is there already is replaced, or stays.

        A spec that is `None` is that of the elements that were written; there must be some.
        """
        spec = self._spec if spec is None else spec
        if spec is None:
            raise InputError("A dataset without elements needs a known element_spec to be saved. Received: neither.")
        for writer in self._writers.values():
            writer.close()
        leaves, structure = jax.tree.flatten(spec)
        description = {
            "format": _FORMAT,
            "compression": self._compression,
            "counts": self._counts,
            "structure": to_json(structure.unflatten(range(structure.num_leaves))),
            "spec": [[leaf.shape, "string" if leaf.dtype == TEXT else leaf.dtype.str] for leaf in leaves],
        }
        (self._staging / _DESCRIPTION).write_text(json.dumps(description, indent=1))
        former = self._staging.with_suffix(".former")
        try:
            if self._path.exists() and (replace or not is_stored(self._path)):
                self._path.rename(former)
            self._staging.rename(self._path)
        except OSError:
            # Another one was quicker, with the same elements.
            if not is_stored(self._path):
                raise
        shutil.rmtree(former, ignore_errors=True)
        self._abandon()

    def abandon(self) -> None:
        """Removes what was written."""
        self._abandon()


def _abandon(writers: dict[int, TFRecordWriter], staging: Path) -> None:
    for writer in writers.values():
        writer.close()
    shutil.rmtree(staging, ignore_errors=True)


def _file_name(shard: int) -> str:
    return f"{shard:05d}.tfrecord"


def _encode(element: Element) -> bytes:
    parts: list[bytes] = []
    for leaf in jax.tree.leaves(element):
        if hasattr(leaf, "element_spec"):
            raise InputError(
                "Elements to save must hold numbers or text. Received: a dataset, as window makes it. Batch the "
                "windows with flat_map first."
            )
        content = serialize_tensor(_as_array(leaf))
        parts += [_LENGTH.pack(len(content)), content]
    return b"".join(parts)


def _as_array(leaf: ArrayLike) -> Any:
    if not isinstance(leaf, bytes):
        return leaf
    # numpy's own text drops trailing zero bytes.
    result = np.empty((), TEXT)
    result[()] = leaf
    return result


class _ElementReader:
    """A reader of a shard; see `Reader`."""

    def __init__(self, records: Reader, structure: PyTreeDef, dtypes: Sequence[np.dtype[Any]]) -> None:
        self._records = records
        self._structure = structure
        self._dtypes = dtypes
        self.tell, self.seek, self.close = records.tell, records.seek, records.close

    @property
    def number(self) -> int:
        return self._records.number

    def read(self, limit: int) -> Columns | None:
        """Returns the next elements."""
        records = self._records.read(limit)
        return None if records is None else _columns.stack([self._decode(record) for record in records])

    def _decode(self, record: bytes) -> Any:
        leaves: list[Any] = []
        at = 0
        for dtype in self._dtypes:
            length = int.from_bytes(record[at : at + _LENGTH.size], "little")
            at += _LENGTH.size
            array = parse_tensor(record[at : at + length], dtype)
            leaves.append(array[()] if array.ndim == 0 else array)
            at += length
        return self._structure.unflatten(leaves)
