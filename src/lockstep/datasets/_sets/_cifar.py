"""CIFAR in its binary version: for each picture the bytes of its labels, then 3 x 32 x 32 bytes of red, green, blue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._archive import read_members
from lockstep.datasets._data_dir import find, find_directory
from lockstep.datasets._data_set import LoadedDataSet, Table
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._place import DataLocation, read
from lockstep.errors import InputError

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10 or CIFAR-100.

    Attributes:
        name: The name of the data set.
        archive: The archive that is published.
        directory: The directory in it.
        files: The files of each split.
        labels: The names of the labels, in the order of their bytes, and how many classes each has.
    """

    name: str
    archive: PublishedFile
    directory: str
    files: Mapping[str, Sequence[str]]
    labels: Mapping[str, int]

    def load(self, location: DataLocation) -> LoadedDataSet:
        """Loads the data set from the archive or, in the user's own directory, from its unpacked files."""
        content, source = self._read_unpacked(location) or self._read_archive(location)
        tables = {split: self._table(content, names, source) for split, names in self.files.items()}
        return LoadedDataSet(tables, f"{self.name} from {source}")

    @property
    def _names(self) -> list[str]:
        return [name for names in self.files.values() for name in names]

    def _read_unpacked(self, location: DataLocation) -> tuple[dict[str, bytes], str] | None:
        if location.root is None:
            return None
        directory = find_directory(location.root, self.name, [self.directory])
        if directory is None:
            return None
        paths = find(directory, self.directory, self._names, location.setting)
        return {path.name: read(path) for path in paths}, str(directory)

    def _read_archive(self, location: DataLocation) -> tuple[dict[str, bytes], str]:
        (archive,) = location.files(self.name, [self.archive])
        contents = read_members(
            archive.content, lambda name: PurePosixPath(name).name in self._names, str(archive.path)
        )
        # By name alone: a directory in the archive may be called otherwise.
        return {PurePosixPath(name).name: content for name, content in contents.items()}, str(archive.path)

    def _table(self, content: Mapping[str, bytes], names: Sequence[str], source: str) -> Table:
        records = np.concatenate([self._records(content, name, source) for name in names])
        labels = {name: records[:, i] for i, name in enumerate(self.labels)}
        # Stored plane by plane; Keras and tensorflow_datasets have channels last.
        pixels = records[:, len(labels) :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        for label, classes in self.labels.items():
            _check(labels[label], label, classes, source)
        columns = {label: numbers.astype(np.int64) for label, numbers in labels.items()}
        # Contiguous: each batch would otherwise gather strided bytes.
        return Table({"image": np.ascontiguousarray(pixels), **columns})

    def _records(self, content: Mapping[str, bytes], name: str, source: str) -> NDArray[np.uint8]:
        if name not in content:
            raise InputError(f"{source} must hold {name}. Received: {', '.join(content) or 'nothing of the kind'}.")
        length = len(self.labels) + _PIXELS
        if len(content[name]) % length or not content[name]:
            raise InputError(
                f"{name} in {source} must hold records of {length} bytes, at least one. Received: "
                f"{len(content[name])} bytes. Replace it with a fresh copy."
            )
        return np.frombuffer(content[name], np.uint8).reshape(-1, length)


def _check(numbers: NDArray[np.uint8], label: str, classes: int, source: str) -> None:
    if numbers.max() >= classes:
        record = int(np.argmax(numbers >= classes))
        raise InputError(
            f"Each {label} must be from 0 to {classes - 1}. Received: {numbers[record]} in record {record}, in "
            f"{source}. Replace it with a fresh copy."
        )
