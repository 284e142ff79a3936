"""The file of one checkpoint: its writer, and its reader, which trusts nothing that the file says.

A file may be damaged, or made to do harm. Nothing is unpacked, unpickled or evaluated, and no more memory is taken than
the file is long: the sizes of its parts are compared with its own first.
"""

from __future__ import annotations

import itertools
import os
import stat
import struct
import time
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.checkpoint import _atomic, _format
from lockstep.checkpoint._format import METADATA, Layout, Manifest, member_of
from lockstep.errors import CheckpointError

# Pieces that stay in a core's cache between the checksum and the copy to the file.
_PIECE = 1 << 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")
# What Python's reader of zip archives raises about bytes that are none.
_NOT_AN_ARCHIVE = (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OverflowError)
_UNREADABLE = (OSError, ValueError, OverflowError, MemoryError)


class Archive:
    """Open file of a checkpoint; it can be read also after the file is removed.

    Attributes:
        file: Its path.
        manifest: The list of its parts.

    Raises:
        CheckpointError: If it is not there, or is not the whole file of a checkpoint.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._descriptor = _open(file)
        # Closed with the last reference too: a reader keeps it open beyond its file.
        self.close = weakref.finalize(self, os.close, self._descriptor)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise damage_error(file, "it is no regular file")
            self._members = self._list_members(status.st_size)
            self.manifest = self._read_manifest()
            self._compare_sizes()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, key: str) -> NDArray[Any]:
        """Returns an array of the manifest.

        Raises:
            CheckpointError: If it is damaged.
        """
        info, layout = self._members[member_of(key)], self.manifest.layouts[key]
        # Compared, not parsed: numpy's own reader would evaluate it.
        header = layout.header()
        try:
            array: NDArray[Any] = np.empty(layout.shape, layout.dtype)
            found, values = bytearray(len(header)), _bytes_of(array)
            self._read_into(info, [memoryview(found), values])
            if bytes(found) != header:
                raise ValueError("its header is not that of the dtype and shape that the file lists for it")
        except _UNREADABLE as error:
            raise damage_error(self.file, f"variable {key!r} cannot be read: {error}") from error
        return array

    def pieces(self, key: str, count: int) -> Iterator[NDArray[Any]]:
        """Yields an array in pieces of so many rows; the last one comes when the checksum of all is right.

        Raises:
            CheckpointError: If it is damaged.
        """
        info, layout = self._members[member_of(key)], self.manifest.layouts[key]
        try:
            position = self._start_of(info)
            header = bytearray(len(layout.header()))
            _read_at(self._descriptor, memoryview(header), position)
            if bytes(header) != layout.header():
                raise ValueError("its header is not that of the dtype and shape that the file lists for it")
            position, checksum = position + len(header), zlib.crc32(header)
            # An array without rows has one piece, too.
            for start in range(0, max(layout.shape[0], 1), count):
                shape = min(count, layout.shape[0] - start), *layout.shape[1:]
                piece: NDArray[Any] = np.empty(shape, layout.dtype)
                values = _bytes_of(piece)
                _read_at(self._descriptor, values, position)
                position, checksum = position + len(values), zlib.crc32(values, checksum)
                if start + count >= layout.shape[0] and checksum != info.CRC:
                    raise ValueError(f"its checksum is {checksum:08x} instead of {info.CRC:08x}")
                yield piece
        except _UNREADABLE as error:
            raise damage_error(self.file, f"variable {key!r} cannot be read: {error}") from error

    def rows(self, key: str, places: NDArray[np.int64]) -> NDArray[Any]:
        """Returns some rows of an array, without the others; the checksum is not looked at.

        Args:
            key: Of the manifest.
            places: Which rows, in ascending order.

        Raises:
            CheckpointError: If they cannot be read.
        """
        info, layout = self._members[member_of(key)], self.manifest.layouts[key]
        found: NDArray[Any] = np.empty((places.size, *layout.shape[1:]), layout.dtype)
        size = found.nbytes // max(places.size, 1)
        ends = np.append(np.flatnonzero(np.diff(places) != 1) + 1, places.size) if places.size else places
        values, begin = _bytes_of(found), 0
        try:
            first = self._start_of(info) + len(layout.header())
            for end in ends.tolist():
                _read_at(self._descriptor, values[begin * size : end * size], first + int(places[begin]) * size)
                begin = end
        except _UNREADABLE as error:
            raise damage_error(self.file, f"variable {key!r} cannot be read: {error}") from error
        return found

    def _list_members(self, size: int) -> dict[str, zipfile.ZipInfo]:
        try:
            with open(self._descriptor, "rb", closefd=False) as raw, zipfile.ZipFile(raw) as archive:
                infos = archive.infolist()
        except OSError as error:
            raise damage_error(self.file, str(error)) from error
        except _NOT_AN_ARCHIVE as error:
            raise damage_error(self.file, f"it is no whole zip archive ({error}); it may have been cut off") from error
        members = {info.filename: info for info in infos}
        if len(members) < len(infos):
            raise damage_error(self.file, "several of its parts have the same name")
        # So that no part claims more than the file has, and no two parts the same bytes.
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise damage_error(
                    self.file, f"its part {info.filename!r:.80} is compressed; parts of checkpoints are not"
                )
        if sum(info.file_size for info in infos) > size:
            raise damage_error(self.file, f"its parts are longer together than the file, which has {size} bytes")
        return members

    def _read_manifest(self) -> Manifest:
        info = self._members.get(METADATA)
        if info is None:
            raise damage_error(self.file, f"it has no part {METADATA!r}, so that it is something else")
        try:
            data = bytearray(info.file_size)
            self._read_into(info, [memoryview(data)])
            return _format.decode_manifest(bytes(data))
        except _UNREADABLE as error:
            raise damage_error(self.file, f"its part {METADATA!r} cannot be read: {error}") from error

    def _compare_sizes(self) -> None:
        """Compares the manifest with the parts of the file."""
        listed = {member_of(key): (key, layout) for key, layout in self.manifest.layouts.items()}
        for name in listed.keys() - self._members.keys():
            raise damage_error(self.file, f"variable {listed[name][0]!r:.200} is missing")
        for name in self._members.keys() - listed.keys() - {METADATA}:
            raise damage_error(self.file, f"it has a part {name!r:.200} that it does not list")
        for name, (key, layout) in listed.items():
            if len(layout.header()) + layout.nbytes != (size := self._members[name].file_size):
                raise damage_error(
                    self.file,
                    f"variable {key!r:.200} is listed as {layout.dtype}{list(layout.shape)}, which does not fit its "
                    f"{size} bytes",
                )

    def _read_into(self, info: zipfile.ZipInfo, parts: list[memoryview]) -> None:
        """Fills `parts` with the bytes of a member, from its first on, and verifies their checksum."""
        position, checksum = self._start_of(info), 0
        for part in parts:
            for start in range(0, len(part), _PIECE):
                piece = part[start : start + _PIECE]
                _read_at(self._descriptor, piece, position)
                checksum = zlib.crc32(piece, checksum)
                position += len(piece)
        if checksum != info.CRC:
            raise ValueError(f"its checksum is {checksum:08x} instead of {info.CRC:08x}")

    def _start_of(self, info: zipfile.ZipInfo) -> int:
        """Returns where the bytes of a member begin."""
        header = bytearray(_LOCAL_HEADER.size)
        _read_at(self._descriptor, memoryview(header), info.header_offset)
        signature, name, more = _LOCAL_HEADER.unpack(header)
        if signature != b"PK\x03\x04":
            raise ValueError(f"no part begins at byte {info.header_offset}")
        # The lengths in the local header count: those of the archive's directory may be of other fields.
        return info.header_offset + len(header) + name + more


def damage_error(file: str, why: str) -> CheckpointError:
    """Returns the error about a file that cannot be used."""
    return CheckpointError(
        f"{file} is not a usable checkpoint: {why}. Take another one of the directory (load_newest finds the newest "
        "that can be read), and remove or restore this file."
    )


def _open(file: str) -> int:
    try:
        # Without waiting for somebody to write, should it be a pipe.
        return os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"There is no checkpoint {file}. Pass a name as latest_checkpoint and all_checkpoints return it; the "
            "writer removes old ones, except pinned ones."
        ) from error
    except (OSError, ValueError) as error:
        raise damage_error(file, f"it cannot be opened ({error})") from error


def _read_at(descriptor: int, piece: memoryview, position: int) -> None:
    while piece:
        count = os.preadv(descriptor, [piece], position)
        if not count:
            raise ValueError(f"the file ends at byte {position}, too early")
        piece, position = piece[count:], position + count


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


@dataclass(frozen=True)
class Pieces:
    """An array that is written piece by piece, and never whole in memory.

    Attributes:
        layout: Of the whole array.
        make: Returns the pieces, one after the other along the first axis.
    """

    layout: Layout
    make: Callable[[], Iterable[NDArray[Any]]]


def write(file: str, step: int, arrays: Mapping[str, NDArray[Any] | Pieces], extra: dict[str, Any]) -> None:
    """Writes a checkpoint, durably; a file that is there is replaced.

    Raises:
        OSError: If it cannot be written; then what was there is unchanged.
    """
    layouts = {
        key: array.layout if isinstance(array, Pieces) else Layout(array.dtype, array.shape)
        for key, array in arrays.items()
    }
    metadata = _format.encode_manifest(Manifest(step, time.time(), layouts, extra))
    with _atomic.replacing(file) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        # First, so that it can be read without the arrays.
        _add(archive, METADATA, len(metadata), [metadata])
        for key, array in arrays.items():
            header = layouts[key].header()
            data = itertools.chain([header], _values_of(array))
            _add(archive, member_of(key), len(header) + layouts[key].nbytes, data)


def _values_of(array: NDArray[Any] | Pieces) -> Iterator[memoryview]:
    """Yields the bytes of an array."""
    for whole in array.make() if isinstance(array, Pieces) else [array]:
        values = _bytes_of(np.ascontiguousarray(whole))
        for start in range(0, len(values), _PIECE):
            yield values[start : start + _PIECE]


def _add(archive: zipfile.ZipFile, name: str, size: int, data: Iterable[Any]) -> None:
    # zipfile must know the size before it writes, to use Zip64 for parts of more than 2 GiB.
    info = zipfile.ZipInfo(name)
    info.file_size = size
    with archive.open(info, "w") as member:
        for piece in data:
            member.write(piece)
