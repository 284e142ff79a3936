"""Locations of a data set's files: the user's directory if one is named, else Keras' cache and the network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.datasets._data_dir import VARIABLE, data_dir, find
from lockstep.datasets._download import UnavailableError
from lockstep.datasets._keras_cache import PublishedFile, cached_path, obtain
from lockstep.errors import DataNotFoundError, InputError


@dataclass(frozen=True)
class File:
    """The content of a file and where it was found."""

    path: Path
    content: bytes


@dataclass(frozen=True)
class DataLocation:
    """The places to look for a data set's files.

    Attributes:
        root: The only directory to look in, if the user named one.
        setting: What named it.
        may_download: Whether to download what is not in Keras' cache.
    """

    root: Path | None
    setting: str = VARIABLE
    may_download: bool = True

    def files(self, data_set: str, published: Sequence[PublishedFile], directly: bool = True) -> list[File]:
        """Returns the files of a data set; `directly` is whether their names are its own, see `find`.

        Raises:
            DataNotFoundError: If one is missing; the message says where it was looked for and what to do.
        """
        # Nowhere else: who names a directory must not train on other data by accident.
        if self.root is not None:
            # The user's directory may hold files as they are published, or unpacked.
            wanted = [local_name(file) for file in published]
            urls = ", ".join(file.url for file in published)
            paths = find(self.root, data_set, wanted, self.setting, urls, directly)
            return [File(path, read(path)) for path in paths]
        return [self._fetch_published(data_set, file) for file in published]

    def _fetch_published(self, data_set: str, file: PublishedFile) -> File:
        try:
            content, path = obtain(file, self.may_download)
        except UnavailableError as error:
            raise _not_found_error(data_set, file, error) from error
        return File(path, content)


def data_location(directory: str | os.PathLike[str] | None, may_download: bool = True) -> DataLocation:
    """Returns where to look for data: in `directory`, else in $LOCKSTEP_DATA_DIR, else in cache and network."""
    if directory is not None:
        return DataLocation(Path(directory).expanduser(), "data_dir", may_download)
    return DataLocation(data_dir(), VARIABLE, may_download)


def read(path: Path) -> bytes:
    """Reads a file; raises `InputError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error


def local_name(file: PublishedFile) -> str:
    """Returns the name of a file in the user's own directory, where a single compressed file may be unpacked."""
    base = Path(file.name).name
    # An archive is read as it is; only single files are unpacked by hand.
    return base if base.endswith(".tar.gz") else base.removesuffix(".gz")


def _not_found_error(data_set: str, file: PublishedFile, reason: UnavailableError) -> DataNotFoundError:
    return DataNotFoundError(
        f"{data_set} is not on this machine: {reason}. Looked for: {cached_path(file)}; {VARIABLE} and data_dir are "
        f"not set. Download {file.url} elsewhere and put it there, or into a directory {data_set}/ below the one that "
        f"{VARIABLE} names."
    )
