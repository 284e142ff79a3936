"""Bundles of tensors: the files `PREFIX.index` and `PREFIX.data-00000-of-00001` of a checkpoint of TensorFlow.

The index is a table from names to where the values lie; the first entry, without a name, tells the number of files
with values. Values are those of TensorFlow's tensors, in the order of C; text is the lengths first. A partitioned
variable is listed as a whole, and each piece of it under a key of its own. Nothing is unpickled, and no value is larger
than the file that it lies in.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc, naming.cc.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from lockstep.checkpoint._tensorflow import slices
from lockstep.checkpoint._tensorflow.messages import parse
from lockstep.checkpoint._tensorflow.table import MAGIC, checksum, extend_checksum, mask, read_table, varint
from lockstep.errors import CheckpointError

INDEX = ".index"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# An index has some hundred bytes for each variable; one of this size would be of millions.
_LARGEST_INDEX = 1 << 30
_MAX_AXES = 64
_TEXT = np.dtype(object)
# TensorFlow's numbers of dtypes (types.proto). Quantized ones are the integers that they are made of; variants and
# resources have no values that could be read.
_DTYPES: Mapping[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("u1"),
    5: np.dtype("<i2"),
    6: np.dtype("i1"),
    7: _TEXT,
    8: np.dtype("<c8"),
    9: np.dtype("<i8"),
    10: np.dtype("?"),
    11: np.dtype("i1"),
    12: np.dtype("u1"),
    13: np.dtype("<i4"),
    14: np.dtype(ml_dtypes.bfloat16),
    15: np.dtype("<i2"),
    16: np.dtype("<u2"),
    17: np.dtype("<u2"),
    18: np.dtype("<c16"),
    19: np.dtype("<f2"),
    22: np.dtype("<u4"),
    23: np.dtype("<u8"),
    24: np.dtype(ml_dtypes.float8_e5m2),
    25: np.dtype(ml_dtypes.float8_e4m3fn),
}


@dataclass(frozen=True)
class Layout:
    """Dtype and shape of a tensor; text has the dtype `object`."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def index_of(prefix: str) -> str:
    """Returns the path of the index of a checkpoint."""
    return prefix + INDEX


def is_bundle(prefix: str) -> bool:
    """Returns whether there is an index of TensorFlow's for a checkpoint; whether it is whole shows when it is read."""
    return is_table(index_of(prefix))


def is_table(path: str) -> bool:
    """Returns whether a file ends as a table does."""
    try:
        with open(path, "rb") as file:
            file.seek(-len(MAGIC), os.SEEK_END)
            return file.read() == MAGIC
    except OSError:
        return False


class Bundle:
    """Checkpoint of TensorFlow, open for reading; values are read when they are asked for.

    Attributes:
        file: The path of its index.
        layouts: Dtype and shape of each tensor, by name; those that no reader can read are left out.

    Raises:
        CheckpointError: If it is damaged, or a file of it is missing.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.file = index_of(prefix)
        try:
            self._entries = read_table(self._index())
            header = parse("Header", self._entries.pop(b"", b""))
            self._shards = _count_shards(header)
            self._tensors = {
                key.decode(): entry
                for key, value in self._entries.items()
                # A key that begins with a zero is one of a piece.
                if not key.startswith(b"\0") and (entry := parse("Entry", value)).dtype in _DTYPES
            }
            self.layouts = {name: _layout(name, entry) for name, entry in self._tensors.items()}
        except (OSError, ValueError) as error:
            raise damage_error(self.file, str(error)) from error
        for shard in range(self._shards):
            if not os.path.isfile(file := self._shard(shard)):
                raise damage_error(self.file, f"{file}, which holds its values, is missing; copy it beside the index")

    def read(self, name: str) -> NDArray[Any]:
        """Returns a tensor; text as an array of `bytes` objects.

        Raises:
            CheckpointError: If its value is damaged; it names file and variable.
        """
        entry, layout = self._tensors[name], self.layouts[name]
        try:
            if not entry.slices:
                return self._value(entry, layout)
            return self._assemble(name, entry, layout)
        except (OSError, ValueError, MemoryError) as error:
            raise damage_error(
                self._shard(entry.shard_id) if not entry.slices else self.file,
                f"variable {name!r:.200} cannot be read: {error}",
            ) from error

    def object_graph(self) -> Any | None:
        """Returns the message that says which object each variable belongs to; `None` for a Saver's checkpoint.

        Raises:
            CheckpointError: If it is damaged.
        """
        if GRAPH not in self.layouts:
            return None
        text = self.read(GRAPH)
        try:
            return parse("Graph", bytes(text.item()))
        except ValueError as error:
            raise damage_error(self.file, str(error)) from error

    def time(self) -> float:
        """Returns when it was written, in seconds since the epoch, as the file system has it."""
        return os.stat(self.file).st_mtime

    def _index(self) -> bytes:
        size = os.path.getsize(self.file)
        if size > _LARGEST_INDEX:
            raise ValueError(f"an index of {size} bytes is not one of a checkpoint")
        with open(self.file, "rb") as file:
            return file.read(_LARGEST_INDEX)

    def _shard(self, number: int) -> str:
        return f"{self._prefix}.data-{number:05}-of-{self._shards:05}"

    def _value(self, entry: Any, layout: Layout) -> NDArray[Any]:
        data = self._bytes(entry)
        if layout.dtype == _TEXT:
            return _text(data, entry, layout)
        expected = math.prod(layout.shape) * layout.dtype.itemsize
        if len(data) != expected:
            raise ValueError(f"{layout.dtype}{list(layout.shape)} takes {expected} bytes, and {len(data)} are there")
        _compare(checksum(data), entry)
        return np.frombuffer(data, layout.dtype).reshape(layout.shape).copy()

    def _bytes(self, entry: Any) -> bytes:
        if not 0 <= entry.shard_id < self._shards:
            raise ValueError(f"it is said to lie in file {entry.shard_id} of {self._shards}")
        with open(self._shard(entry.shard_id), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > size:
                raise ValueError(f"it is said to lie at {entry.offset} + {entry.size}, and the file has {size} bytes")
            file.seek(entry.offset)
            return file.read(entry.size)

    def _assemble(self, name: str, whole: Any, layout: Layout) -> NDArray[Any]:
        """Returns a partitioned variable, put together from its pieces."""
        pieces: list[tuple[tuple[slice, ...], NDArray[Any]]] = []
        filled = 0
        for piece in whole.slices:
            extents = slices.extents_of(piece)
            data = self._entries.get(slices.key_of(name.encode(), extents))
            if data is None:
                raise ValueError(f"its piece {extents} is not listed")
            entry = parse("Entry", data)
            place = slices.indices(extents, layout.shape)
            shape = tuple(part.stop - part.start for part in place)
            pieces.append((place, self._value(entry, Layout(layout.dtype, shape))))
            filled += math.prod(shape)
        # Before memory is taken for the whole: the pieces were as long as the files, a shape may claim anything.
        if filled != math.prod(layout.shape):
            raise ValueError(f"its pieces have {filled} numbers, and the variable {math.prod(layout.shape)}")
        result = np.empty(layout.shape, layout.dtype)
        for place, value in pieces:
            result[place] = value
        return result


def _count_shards(header: Any) -> int:
    if header.num_shards < 1:
        raise ValueError("it does not say in how many files its values are")
    if header.endianness:
        raise ValueError("its numbers are of a big-endian machine; save it on a little-endian one")
    return header.num_shards


def _layout(name: str, entry: Any) -> Layout:
    shape = tuple(dim.size for dim in entry.shape.dim)
    if entry.shape.unknown_rank or len(shape) > _MAX_AXES or any(size < 0 for size in shape):
        raise ValueError(f"variable {name!r:.200} has the shape {shape[:8]}, which no array has")
    return Layout(_DTYPES[entry.dtype], shape)


def _text(data: bytes, entry: Any, layout: Layout) -> NDArray[Any]:
    """Returns text: the lengths of all elements, the checksum of those, and the bytes."""
    count, position, crc = math.prod(layout.shape), 0, 0
    # At least one byte for each length: what claims more elements than there are bytes is damaged.
    if count > len(data):
        raise ValueError(f"{count} texts are in {len(data)} bytes")
    lengths: list[int] = []
    for _ in range(count):
        length, position = varint(data, position)
        lengths.append(length)
        # Summed up as numbers of 32 bits, or 64 where they need them, not as the file holds them.
        crc = extend_checksum(crc, length.to_bytes(4 if length < 1 << 32 else 8, "little"))
    stored = data[position : position + 4]
    if int.from_bytes(stored, "little") != mask(crc):
        raise ValueError("the checksum of its lengths is wrong")
    _compare(extend_checksum(extend_checksum(crc, stored), data[position + 4 :]), entry)
    ends = list(itertools.accumulate(lengths, initial=position + 4))
    if ends[-1] != len(data):
        raise ValueError(f"its texts end at byte {ends[-1]} of {len(data)}")
    result = np.empty(count, object)
    result[:] = [data[start:end] for start, end in itertools.pairwise(ends)]
    return result.reshape(layout.shape)


def _compare(crc: int, entry: Any) -> None:
    if mask(crc) != entry.crc32c:
        raise ValueError(f"its checksum is {mask(crc):08x} instead of {entry.crc32c:08x}")


def damage_error(file: str, why: str) -> CheckpointError:
    """Returns the error about a checkpoint of TensorFlow that cannot be used."""
    return CheckpointError(
        f"{file} is not a usable checkpoint of TensorFlow: {why}. Take another one of the directory, or copy all files "
        "of this one again."
    )
