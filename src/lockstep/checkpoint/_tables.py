"""Reader of a checkpoint's tables: single rows, pieces, or whole variables, from the files of all servers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.checkpoint._archive import Archive, damage_error
from lockstep.checkpoint._format import Layout
from lockstep.checkpoint._table_files import TableRecord, ids_key, initializer_key, values_key
from lockstep.errors import CheckpointError

Ids = NDArray[np.int64]
# Of rows that are in memory at a time; 4 MiB are 65,536 rows of 16 floats.
_PIECE_BYTES = 4 << 20
# Programs are compiled for sizes that are powers of two, from this one on.
_LEAST = 64


def piece_rows(layout: Layout) -> int:
    """Returns how many rows of an array are read or written at a time."""
    return max(1, _PIECE_BYTES * layout.shape[0] // max(layout.nbytes, 1)) if layout.shape[0] else 1


class Tables:
    """The tables of a checkpoint. They can be read also after the files are removed.

    Args:
        prefix: The checkpoint's name.
        record: What the checkpoint says of them.

    Attributes:
        record: What the checkpoint says of them.
        directory: Where the files lie.

    Raises:
        CheckpointError: If a file is missing, or not as it was written.
    """

    def __init__(self, prefix: str, record: TableRecord) -> None:
        self.record = record
        self.directory = os.path.join(os.path.dirname(os.path.abspath(prefix)), record.directory)
        self._files = [_RowFile(os.path.join(self.directory, name), size, record) for name, size in record.files]
        self._table_of = {key: name for name, table in record.tables.items() for key in table.keys}

    def __contains__(self, key: str) -> bool:
        return key in self._table_of

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """The dtype and shape of each table and slot, by name."""
        return {key: self.record.tables[name].layout_of(key) for key, name in self._table_of.items()}

    def read(self, key: str) -> NDArray[Any]:
        """Returns a whole table or slot.

        Raises:
            CheckpointError: If a file is damaged.
        """
        layout = self.layouts[key]
        whole: NDArray[Any] = np.empty(layout.shape, layout.dtype)
        count = piece_rows(layout)
        for start in range(0, len(whole), count):
            stop = min(start + count, len(whole))
            whole[start:stop] = self.rows(key, np.arange(start, stop, dtype=np.int64))
        return whole

    def rows(self, key: str, ids: Ids) -> NDArray[Any]:
        """Returns rows of a table or slot, without the others.

        Args:
            key: The name.
            ids: Which rows, in ascending order.

        Raises:
            CheckpointError: If a file cannot be read.
        """
        name = self._table_of[key]
        table = self.record.tables[name]
        layout = table.layout_of(key)
        found: NDArray[Any] = np.empty((ids.size, *layout.shape[1:]), layout.dtype)
        is_new = np.ones(ids.size, bool)
        for file in self._files:
            where, rows = file.rows(name, key, ids)
            found[where] = rows
            is_new[where] = False
        if is_new.any():
            initial = table.initials[table.keys.index(key)]
            found[is_new] = self._initial_rows(name, ids[is_new]) if initial is None else initial
        return found

    def initializer(self, table: str) -> bytes | None:
        """Returns the program by which rows that nobody has touched are made; `None` if they are zeros."""
        return next((code for file in self._files if (code := file.initializer(table))), None)

    def verify(self) -> None:
        """Reads all there is, piece by piece.

        Raises:
            CheckpointError: If something is damaged.
        """
        for file in self._files:
            file.verify()

    def _initial_rows(self, table: str, ids: Ids) -> NDArray[Any]:
        layout = self.record.tables[table].layout
        code = self.initializer(table)
        if code is None:
            return np.zeros((ids.size, *layout.shape[1:]), layout.dtype)
        size = max(_LEAST, 1 << (ids.size - 1).bit_length())
        padded = np.zeros(size, np.int64)
        padded[: ids.size] = ids
        return _program(code)(padded)[: ids.size].astype(layout.dtype, copy=False)


class _RowFile:
    """Reader of the rows in one server's file."""

    def __init__(self, path: str, size: int, record: TableRecord) -> None:
        try:
            found = os.stat(path).st_size
        except OSError as error:
            raise CheckpointError(
                f"{path} holds rows of a checkpoint's tables. It is not there: {error}. Bring it back, or remove the "
                "checkpoint; an older one is found then."
            ) from error
        if found != size:
            raise damage_error(path, f"it has {found} bytes instead of {size}")
        self._archive = Archive(path)
        self._record = record
        self._ids: dict[str, Ids] = {}
        layouts = self._archive.manifest.layouts
        for name, table in record.tables.items():
            own = layouts.get(ids_key(name))
            if own is None:
                continue
            row = table.layout.shape[1:]
            expected = {values_key(key): Layout(table.layout_of(key).dtype, (*own.shape, *row)) for key in table.keys}
            if own.dtype != np.int64 or len(own.shape) != 1 or any(layouts.get(k) != v for k, v in expected.items()):
                raise damage_error(path, f"its rows of {name!r:.200} are not as the checkpoint lists them")

    def rows(self, table: str, key: str, ids: Ids) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Returns which of some ids this file has, and their rows."""
        if ids_key(table) not in self._archive.manifest.layouts:
            return np.empty(0, np.intp), self._archive_rows(table, key, np.empty(0, np.int64))
        known = self._ids_of(table)
        places = np.searchsorted(known, ids)
        there = np.flatnonzero(places < known.size)
        there = there[known[places[there]] == ids[there]]
        return there, self._archive_rows(table, key, places[there].astype(np.int64))

    def initializer(self, table: str) -> bytes | None:
        """Returns the program that makes rows of a table, if it is in this file."""
        key = initializer_key(table)
        return self._archive.read(key).tobytes() if key in self._archive.manifest.layouts else None

    def verify(self) -> None:
        """Reads all, piece by piece."""
        for key, layout in self._archive.manifest.layouts.items():
            for _ in self._archive.pieces(key, piece_rows(layout)):
                pass
        for name in self._record.tables:
            if ids_key(name) in self._archive.manifest.layouts:
                self._check_ids(name)

    def _check_ids(self, table: str) -> None:
        rows, last, key = self._record.tables[table].layout.shape[0], -1, ids_key(table)
        for piece in self._archive.pieces(key, piece_rows(self._archive.manifest.layouts[key])):
            if piece.size and (piece[0] <= last or piece[-1] >= rows or bool((np.diff(piece) <= 0).any())):
                raise damage_error(self._archive.file, f"the ids of its rows of {table!r:.200} are in no order")
            last = int(piece[-1]) if piece.size else last

    def _ids_of(self, table: str) -> Ids:
        # 8 bytes a row, of those that were touched: what they lead to stays in the file.
        if table not in self._ids:
            self._ids[table] = self._archive.read(ids_key(table))
        return self._ids[table]

    def _archive_rows(self, table: str, key: str, places: Ids) -> NDArray[Any]:
        if not places.size:
            layout = self._record.tables[table].layout_of(key)
            return np.empty((0, *layout.shape[1:]), layout.dtype)
        return self._archive.rows(values_key(key), places)


@functools.lru_cache(maxsize=64)
def _program(code: bytes) -> Callable[[Ids], NDArray[Any]]:
    """Returns a program of initial rows. Exported programs are read as those of a saved model: nothing is unpickled."""
    import jax
    from jax import export

    call: Any = jax.jit(export.deserialize(bytearray(code)).call)

    def rows(ids: Ids) -> NDArray[Any]:
        # It was exported for the servers' processors.
        with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
            return np.asarray(call(ids))

    return rows
