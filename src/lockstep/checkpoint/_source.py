"""The file, or files, behind a checkpoint's name: lockstep's own, or TensorFlow's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from lockstep.checkpoint._archive import Archive, damage_error
from lockstep.checkpoint._format import DType
from lockstep.checkpoint._names import file_of, path_of, prefix_of
from lockstep.checkpoint._table_files import TABLES, TableRecord
from lockstep.checkpoint._tables import Tables
from lockstep.checkpoint._tensorflow.bundle import INDEX, Bundle, is_bundle


class ArchiveOfTables(Archive):
    """The file of a checkpoint with tables beside it, whose manifest lists them among its own arrays.

    Attributes:
        tables: The tables.

    Raises:
        CheckpointError: If one of the files is not there, or not whole.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        try:
            record = TableRecord.from_json(self.manifest.extra[TABLES])
        except ValueError as error:
            raise damage_error(file, str(error)) from error
        self.own = tuple(self.manifest.layouts)
        self.tables = Tables(prefix_of(file), record)
        self.manifest = dataclasses.replace(self.manifest, layouts={**self.manifest.layouts, **self.tables.layouts})

    def read(self, key: str) -> NDArray[Any]:
        """Returns an array of the manifest; a table is put together of all its rows."""
        return self.tables.read(key) if key in self.tables else super().read(key)


def open_source(prefix: str | os.PathLike[str]) -> Archive | Bundle:
    """Opens a checkpoint by its name; the index of one of TensorFlow's will do, too.

    Raises:
        CheckpointError: If it is not there, or is damaged.
    """
    # Ours first: an Estimator that goes on from TensorFlow's checkpoint of a step writes its own of the same step.
    if not os.path.exists(file_of(prefix)):
        path = path_of(prefix)
        for name in (path, path.removesuffix(INDEX)):
            if is_bundle(name):
                return Bundle(name)
    archive = Archive(file_of(prefix))
    if TABLES not in archive.manifest.extra:
        return archive
    archive.close()
    return ArchiveOfTables(file_of(prefix))


def shapes_of(source: Archive | Bundle) -> Mapping[str, tuple[int, ...]]:
    """Returns the shape of each variable, by name."""
    layouts = source.layouts if isinstance(source, Bundle) else source.manifest.layouts
    return {name: layout.shape for name, layout in layouts.items()}


def dtypes_of(source: Archive | Bundle) -> Mapping[str, DType]:
    """Returns the dtype of each variable, by name."""
    layouts = source.layouts if isinstance(source, Bundle) else source.manifest.layouts
    return {name: layout.dtype for name, layout in layouts.items()}


def exists(prefix: str | os.PathLike[str]) -> bool:
    """Returns whether there is a file of this name, ours or TensorFlow's."""
    return os.path.isfile(file_of(prefix)) or is_bundle(path_of(prefix_of(prefix)))
