"""Writing the file of one checkpoint."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lockstep.checkpoint import _atomic, _manifest
from lockstep.checkpoint._manifest import Manifest
from lockstep.checkpoint._members import METADATA, Layout, member_of

# Pieces that stay in a core's cache between the checksum and the copy to the file.
_PIECE = 1 << 20


def write(file: str, step: int, arrays: Mapping[str, NDArray[Any]], extra: dict[str, Any]) -> None:
    """Writes a checkpoint, durably; a file that is there is replaced.

    Raises:
        OSError: If it cannot be written; then what was there is unchanged.
    """
    layouts = {key: Layout(array.dtype, array.shape) for key, array in arrays.items()}
    with _atomic.replacing(file) as target:
        _fill(target, Manifest(step, time.time(), layouts, extra), arrays)


def _fill(target: BinaryIO, manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        metadata = _manifest.encoded(manifest)
        _add(archive, METADATA, len(metadata), [metadata])
        for key, array in arrays.items():
            header = manifest.layouts[key].header()
            _add(archive, member_of(key), len(header) + array.nbytes, [header, *_pieces(array)])


def _add(archive: zipfile.ZipFile, name: str, size: int, data: Iterable[Any]) -> None:
    info = zipfile.ZipInfo(name)
    info.file_size = size
    with archive.open(info, "w") as member:
        for piece in data:
            member.write(piece)


def _pieces(array: NDArray[Any]) -> Iterator[memoryview]:
    data = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]
