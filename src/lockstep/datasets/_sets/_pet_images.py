"""The archive of cats and dogs that Microsoft publishes, unpacked into Keras' cache."""

from __future__ import annotations

import io
import re
import shutil
import uuid
import zipfile
import zlib
from pathlib import Path

from lockstep.datasets import _keras_cache
from lockstep.datasets._keras_cache import PublishedFile, download_lock
from lockstep.datasets._place import DataLocation, File
from lockstep.errors import DataNotFoundError, InputError

DIRECTORY = "PetImages"
URL = "https://download.microsoft.com/download/3/E/1/3E1C3F21-ECDB-4869-8368-6DEBA77B919F/kagglecatsanddogs_5340.zip"
PUBLISHED = PublishedFile(
    name="kagglecatsanddogs_5340.zip",
    url=URL,
    sha256="b7974bd00a84a99921f36ee4403f089853777b5ae8d151c76a86e64900334af9",
    patience=30,
)
_SECONDS = 600.0
_PICTURE = re.compile(r"PetImages/(Cat|Dog)/\d+\.jpg")


def obtain(location: DataLocation) -> Path:
    """Returns the directory with the pictures, which is made of the archive if it is not there.

    Raises:
        DataNotFoundError: If the archive is nowhere, or cannot be unpacked into Keras' cache.
    """
    directory = _keras_cache.directory() / "cats_vs_dogs" / DIRECTORY
    # Published in one step, so it is whole if it is there.
    if directory.is_dir():
        return directory
    (archive,) = location.files("cats_vs_dogs", [PUBLISHED])
    # Unpacked once, also if all workers of a machine start together.
    with download_lock(directory, _SECONDS):
        if not directory.is_dir():
            _unpack(archive, directory)
    return directory


def is_usable(file: Path) -> bool:
    """Returns whether a file says that it is JFIF in its first bytes, as tensorflow_datasets asks of each."""
    with file.open("rb") as content:
        return b"JFIF" in content.read(10)


def _unpack(archive: File, directory: Path) -> None:
    """Makes the directory in one step, so that nobody reads a part of it."""
    temporary = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}")
    try:
        _write_pictures(archive, temporary)
        (temporary / DIRECTORY).rename(directory)
    except OSError as error:
        raise DataNotFoundError(
            f"cats_vs_dogs cannot be unpacked to {directory}: {error.strerror}. Make room there, or unpack {URL} "
            "elsewhere and let LOCKSTEP_DATA_DIR name the directory that holds PetImages/."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_pictures(archive: File, directory: Path) -> None:
    for kind in ("Cat", "Dog"):
        (directory / DIRECTORY / kind).mkdir(parents=True)
    try:
        with zipfile.ZipFile(io.BytesIO(archive.content)) as pictures:
            # Only names of this form: a path such as ../x must not leave the directory.
            for name in filter(_PICTURE.fullmatch, pictures.namelist()):
                (directory / name).write_bytes(pictures.read(name))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{archive.path} is no complete .zip archive: {error}. Delete it.") from error
