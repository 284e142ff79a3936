"""Locations of the files of data sets."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.datasets._download import PublishedFile, UnavailableError, cached_path, obtain
from lockstep.errors import DataNotFoundError, InputError

VARIABLE = "LOCKSTEP_DATA_DIR"


def find(
    root: Path,
    data_set: str,
    names: Sequence[str],
    setting: str = VARIABLE,
    published: str = "",
    directly: bool = True,
) -> list[Path]:
    """Returns the paths of a data set's files, each as it is or with ".gz" after its name.

    They lie in the directory `data_set` of `root` or, where `directly` is true or `root` has that name, in `root`
    itself. `setting` is what named `root`, `published` where the files can be had, for the message.
    """
    # File names alone do not tell MNIST from Fashion-MNIST; the directory's name does.
    directories = [root / data_set, root] if directly or root.name == data_set else [root / data_set]
    for directory in directories:
        paths_of_all = [path for name in names if (path := _existing_file(directory / name))]
        if len(paths_of_all) == len(names):
            return paths_of_all
    origin = f" of {published}" if published else ""
    missing = [[d / name for name in names if not _existing_file(d / name)] for d in directories]
    # The directory that lacks the fewest files is the one that was meant.
    nearest = min(map(len, missing))
    paths = [str(path) for group in missing if len(group) == nearest for path in group]
    raise missing_data_error(
        root,
        f"that holds the files of {data_set}, in {data_set}/{' or directly' if len(directories) > 1 else ''}",
        f"Not there, with or without .gz: {', '.join(paths)}. Put the files{origin} there",
        setting,
    )


def find_directory(root: Path, data_set: str, alternatives: Sequence[str]) -> Path | None:
    """Returns the first of some directories that lie in the directory `data_set` of `root`, or directly in `root`."""
    paths = [directory / name for name in alternatives for directory in (root / data_set, root)]
    return next((path for path in paths if path.is_dir()), None)


def missing_data_error(root: Path, rule: str, remedy: str, setting: str = VARIABLE) -> DataNotFoundError:
    """Returns the error for a directory that lacks a data set; `rule` and `remedy` are parts of sentences."""
    otherwise = f"unset {VARIABLE}" if setting == VARIABLE else f"leave {setting} away"
    return DataNotFoundError(
        f"{setting} must name a directory {rule}. Received: {setting}={root}. {remedy}, or {otherwise}."
    )


def _existing_file(path: Path) -> Path | None:
    # Files are published compressed, and often unpacked by hand.
    compressed = path.with_name(f"{path.name}.gz")
    return next((p for p in (path, compressed) if p.is_file()), None)


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
            wanted = [_local_name(file) for file in published]
            urls = ", ".join(file.url for file in published)
            paths = find(self.root, data_set, wanted, self.setting, urls, directly)
            return [File(path, read(path)) for path in paths]
        found: list[File] = []
        for file in published:
            try:
                content, path = obtain(file, self.may_download)
            except UnavailableError as error:
                raise DataNotFoundError(
                    f"{data_set} is not on this machine: {error}. Looked for: {cached_path(file)}; {VARIABLE} and "
                    f"data_dir are not set. Download {file.url} elsewhere and put it there, or into a directory "
                    f"{data_set}/ below the one that {VARIABLE} names."
                ) from error
            found.append(File(path, content))
        return found


def data_location(directory: str | os.PathLike[str] | None, may_download: bool = True) -> DataLocation:
    """Returns where to look for data: in `directory`, else in $LOCKSTEP_DATA_DIR, else in cache and network."""
    if directory is not None:
        return DataLocation(Path(directory).expanduser(), "data_dir", may_download)
    text = os.environ.get(VARIABLE)
    # Empty counts as unset: a shell cannot always remove a variable.
    return DataLocation(Path(os.path.expanduser(text)) if text else None, VARIABLE, may_download)


def read(path: Path) -> bytes:
    """Reads a file; raises `InputError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error


def _local_name(file: PublishedFile) -> str:
    """Returns the name of a file in the user's own directory, where a single compressed file may be unpacked."""
    base = Path(file.name).name
    # An archive is read as it is; only single files are unpacked by hand.
    return base if base.endswith(".tar.gz") else base.removesuffix(".gz")


def read_members(content: bytes, wanted: Callable[[str], bool], name: str) -> dict[str, bytes]:
    """Returns the files of a .tar.gz archive whose names are wanted; `name` is the archive's, for messages."""
    contents: dict[str, bytes] = {}
    try:
        with gzip.open(io.BytesIO(content)) as unzipped:
            # As a stream: going back in a gzip file would decompress it again.
            with tarfile.open(fileobj=unzipped, mode="r|") as archive:
                for member in archive:
                    # Files alone: a link or a device in an archive names something outside of it.
                    if member.isfile() and wanted(member.name):
                        file = archive.extractfile(member)
                        contents[member.name] = file.read() if file else b""
            # tarfile stops at the archive's end marker; gzip checks its checksum only at the end of the file.
            while unzipped.read(1 << 20):
                pass
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} is no complete .tar.gz archive: {error}. Replace it with a fresh copy.") from error
    return contents
