"""Rows of tables in the files of a checkpoint: each server writes and reads its own ranges, piece by piece.

What nobody has touched takes no space: the program that makes such rows lies beside the others. All is as it is after
the step of the checkpoint, with nothing to be brought up to date, so that any program may read it: other servers, an
evaluation that has none, a training on one device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from lockstep._engine.servers import cuts
from lockstep._engine.servers.messages import Message
from lockstep._engine.servers.rows import Table
from lockstep._engine.servers.server_group import ServerGroup
from lockstep._types import JSON, Array
from lockstep.checkpoint import internal as files
from lockstep.errors import CheckpointError

TableArrays = Mapping[str, Sequence[str]]
"""By table: the names of its value and of its slots, in this order."""


@dataclass(frozen=True)
class FileInfo:
    """Name and size of one server's file.

    Attributes:
        file: Its name in the directory.
        bytes: Its size.
    """

    file: str
    bytes: int

    def to_json(self) -> JSON:
        """Returns it as a JSON object."""
        return asdict(self)


def save(group: ServerGroup, directory: str, step: int, arrays: TableArrays) -> list[FileInfo]:
    """Has all servers write their rows of tables, each into a file of its own.

    Raises:
        CheckpointError: If a server cannot write, or the files are not where the chief looks for them.
    """
    message = Message("save tables", {"directory": directory, "step": step, "tables": _as_lists(arrays)})
    infos = [FileInfo(str(i["file"]), int(i["bytes"])) for i in cuts.have_written(group, message, directory)]
    for link, info in zip(group.links, infos, strict=True):
        path = os.path.join(directory, info.file)
        if not os.path.exists(path) or os.stat(path).st_size != info.bytes:
            raise CheckpointError(
                f"Servers write their rows of tables into the model_dir, which all tasks must reach by one path. "
                f"{link.task} has written {info.file}, which is not in {directory} here. Put the model_dir on a file "
                "system that the machines share."
            )
    return infos


def restore(group: ServerGroup, directory: str, names: Sequence[str], arrays: TableArrays) -> None:
    """Has all servers take their rows of tables from files that `save` has had written, by any number of servers."""
    facts = {"directory": directory, "files": list(names), "tables": _as_lists(arrays)}
    group.ask_all(Message("load tables", facts))


def _as_lists(arrays: TableArrays) -> dict[str, list[str]]:
    return {name: list(keys) for name, keys in arrays.items()}


def write(
    path: str,
    step: int,
    tables: Mapping[str, tuple[Table, Sequence[str]]],
    initializers: Mapping[str, bytes],
    note: Callable[[], None],
) -> FileInfo:
    """Writes a server's rows of tables, whole or not at all, without holding more than a piece in memory.

    Args:
        path: The file.
        step: Of the checkpoint.
        tables: By name: the table, and the names of its value and slots.
        initializers: By table, the program of its first rows.
        note: Called after each piece.

    Raises:
        CheckpointError: If it cannot be written.
    """
    arrays: dict[str, Array | files.Pieces] = {}
    for name, (table, keys) in tables.items():
        count = table.kept_count
        arrays[files.ids_key(name)] = files.Pieces(files.ArrayLayout(np.dtype(np.int64), (count,)), table.kept_ids)
        for which, key in enumerate(keys):
            layout = files.ArrayLayout(table.arrays[which].dtype, (count, *table.variable.row_shape))
            arrays[files.values_key(key)] = files.Pieces(layout, _Reading(table, which, note))
        if name in initializers:
            arrays[files.initializer_key(name)] = np.frombuffer(initializers[name], np.uint8)
    with files.naming(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write(path, step, arrays, {})
        return FileInfo(os.path.basename(path), os.stat(path).st_size)


@dataclass(frozen=True)
class _Reading:
    """Reads an array of a table, piece by piece."""

    table: Table
    which: int
    note: Callable[[], None]

    def __call__(self) -> Iterator[Array]:
        for ids in self.table.kept_ids():
            yield self.table.read_rows(self.which, ids)
            # Asked for the next one, the writer has written this one.
            self.note()


def load(paths: Sequence[str], table: Table, keys: Sequence[str], note: Callable[[], None]) -> None:
    """Takes the rows of a table that are this server's, out of the files of all servers that have written some.

    Args:
        paths: The files.
        table: Without rows.
        keys: The names of its value and slots.
        note: Called after each piece.

    Raises:
        CheckpointError: If a file is missing or damaged.
    """
    name = files.ids_key(table.variable.name)
    for path in paths:
        with files.Archive(path) as archive:
            own = archive.manifest.layouts.get(name)
            if own is None or not _overlaps(archive, name, own.shape[0], table):
                continue
            names = [name, *map(files.values_key, keys)]
            # All in pieces of as many rows.
            count = min(files.piece_rows(archive.manifest.layouts[n]) for n in names)
            read = [archive.pieces(n, count) for n in names]
            for ids, *values in zip(*read, strict=True):
                table.load_rows(ids, values)
                note()


def _overlaps(archive: files.Archive, name: str, count: int, table: Table) -> bool:
    """Returns whether a file has rows of this server's ranges."""
    if not count:
        return False
    first, last = archive.rows(name, np.asarray([0, count - 1], np.int64))
    return any(shard.start <= last and first < shard.stop for shard in table.shards)
