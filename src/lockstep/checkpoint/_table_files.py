"""Files of a checkpoint's tables: which there are, what a checkpoint says of them, and when they go.

A table is a variable that parameter servers hold in ranges of rows, with the optimizer's slots of it. Each server
writes its rows into a file of its own, in a directory beside the checkpoint,
`<directory>/<basename>-<step>.tables-<token>`. The checkpoint's own file comes last and names the directory and the
files: without it, they are no checkpoint.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lockstep.checkpoint import _format
from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._format import Layout
from lockstep.checkpoint._names import file_of
from lockstep.errors import CheckpointError

TABLES = "lockstep/tables"
"""The name under which a checkpoint's `extra` says which tables it has."""
_VERSION = 1
_MARK = ".tables-"
_DIRECTORY = re.compile(r"(?P<stem>[^/]+-[0-9]{1,19})\.tables-[0-9a-f]{8}")
_FILE = re.compile(r"[A-Za-z0-9_.-]{1,200}\.npz")


@dataclass(frozen=True)
class TableLayout:
    """A table: dtype and shape of its value, and the arrays that are kept of it.

    Attributes:
        layout: Of the value.
        keys: The names of the value and of its slots, in this order.
        dtypes: Their dtypes.
        initials: The number that rows of each begin with where nobody has touched them; `None` for the value, of which
            a program makes them.
    """

    layout: Layout
    keys: tuple[str, ...]
    dtypes: tuple[_format.DType, ...]
    initials: tuple[float | None, ...]

    def layout_of(self, key: str) -> Layout:
        """Returns dtype and shape of the value or a slot."""
        return Layout(self.dtypes[self.keys.index(key)], self.layout.shape)


@dataclass(frozen=True)
class TableRecord:
    """The entry in a checkpoint's `extra`.

    Attributes:
        directory: The name of the directory of the files, beside the checkpoint.
        files: Name and bytes of each file.
        tables: The tables, by name.
    """

    directory: str
    files: tuple[tuple[str, int], ...]
    tables: Mapping[str, TableLayout]

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON."""
        tables = {
            name: {
                "shape": list(table.layout.shape),
                "arrays": [
                    [key, _format.text_of(dtype), initial]
                    for key, dtype, initial in zip(table.keys, table.dtypes, table.initials, strict=True)
                ],
            }
            for name, table in self.tables.items()
        }
        return {
            "version": _VERSION,
            "directory": self.directory,
            "files": [list(f) for f in self.files],
            "tables": tables,
        }

    @classmethod
    def from_json(cls, record: Any) -> TableRecord:
        """Returns what `to_json` has described.

        Raises:
            ValueError: If it is something else.
        """
        try:
            if record["version"] != _VERSION:
                raise ValueError(f"its tables are of version {record['version']!r:.40}; update lockstep")
            directory, files = str(record["directory"]), [(str(name), int(size)) for name, size in record["files"]]
            tables = {str(name): _table(value) for name, value in record["tables"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it does not say which tables it has ({error!r:.80})") from error
        # Names of a file that may do harm: they lead nowhere but into the directory beside it.
        if not _DIRECTORY.fullmatch(directory) or not all(_FILE.fullmatch(name) for name, _ in files):
            raise ValueError("the names of its tables' files are none that are written here")
        return cls(directory, tuple(files), tables)


def _table(record: Any) -> TableLayout:
    keys, dtypes, initials = zip(*record["arrays"], strict=True)
    shape = tuple(int(n) for n in record["shape"])
    if not shape or min(shape) < 0:
        raise ValueError(f"a table of shape {shape}")
    types = tuple(_format.dtype_of(text) for text in dtypes)
    numbers = tuple(None if number is None else float(number) for number in initials)
    return TableLayout(Layout(types[0], shape), tuple(map(str, keys)), types, numbers)


def ids_key(table: str) -> str:
    """Returns the name, in a file, of the ids of the rows that it has of a table."""
    return f"ids/{table}"


def values_key(key: str) -> str:
    """Returns the name, in a file, of rows of a table's value or of a slot."""
    return f"values/{key}"


def initializer_key(table: str) -> str:
    """Returns the name, in a file, of the program that makes rows of a table that nobody has touched."""
    return f"initializer/{table}"


def new_directory(prefix: str) -> str:
    """Returns the path of a directory for the tables of a checkpoint, which is not there yet."""
    return f"{prefix}{_MARK}{secrets.token_hex(4)}"


def remove_tables(prefix: str) -> None:
    """Removes the files of a checkpoint's tables, after its own."""
    for directory in glob.glob(f"{glob.escape(prefix)}{_MARK}*"):
        shutil.rmtree(directory, ignore_errors=True)


def sweep(directory: str, basename: str) -> None:
    """Removes files of tables that no checkpoint names: of writers that were killed, and of checkpoints that went."""
    with os.scandir(directory) as entries:
        found = [entry.name for entry in entries if entry.name.startswith(f"{basename}-") and _MARK in entry.name]
    for name in found:
        match = _DIRECTORY.fullmatch(name)
        if match is not None and _named_by(os.path.join(directory, match["stem"])) not in (name, ""):
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _named_by(prefix: str) -> str | None:
    """Returns the directory that a checkpoint names; `None` if there is none, "" if it cannot be read."""
    if not os.path.exists(file_of(prefix)):
        return None
    with suppress(CheckpointError, ValueError), Archive(file_of(prefix)) as archive:
        record = archive.manifest.extra.get(TABLES)
        return None if record is None else TableRecord.from_json(record).directory
    return ""
