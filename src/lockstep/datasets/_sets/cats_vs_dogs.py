"""Photographs of cats and dogs: PetImages/{Cat,Dog}/*.jpg as published, or {train,test}/{cat,dog}/*.jpg."""

from __future__ import annotations

import io
import os
import re
import shutil
import uuid
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.datasets import _download
from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table, fixed_order
from lockstep.datasets._download import PublishedFile, download_lock
from lockstep.datasets._info import ClassLabel, FeaturesDict, Image
from lockstep.datasets._location import DataLocation, File, find_directory, missing_data_error, read
from lockstep.errors import DataNotFoundError, InputError

_NAMES = ["cat", "dog"]
_DIRECTORY = "PetImages"
_URL = "https://download.microsoft.com/download/3/E/1/3E1C3F21-ECDB-4869-8368-6DEBA77B919F/kagglecatsanddogs_5340.zip"
PUBLISHED = PublishedFile(
    name="kagglecatsanddogs_5340.zip",
    url=_URL,
    sha256="b7974bd00a84a99921f36ee4403f089853777b5ae8d151c76a86e64900334af9",
    patience=30,
)
_UNPACKING_SECONDS = 600.0
_PICTURE = re.compile(r"PetImages/(Cat|Dog)/\d+\.jpg")


def _load(location: DataLocation) -> LoadedDataSet:
    if location.root is None:
        return _load_published(_unpacked_directory(location))
    published = find_directory(location.root, "cats_vs_dogs", [_DIRECTORY])
    if published is not None:
        return _load_published(published)
    directory = find_directory(location.root, "cats_vs_dogs", ["."])
    splits = [split for split in ("train", "test") if directory is not None and (directory / split).is_dir()]
    if directory is None or not splits:
        raise missing_data_error(
            location.root,
            "that holds cats_vs_dogs/train/cat/*.jpg and so on, or cats_vs_dogs/PetImages/Cat/*.jpg and so on, as in "
            f"{_URL}",
            "Put the files there",
            location.setting,
        )
    tables = {split: _table(directory / split, _NAMES) for split in splits}
    return LoadedDataSet(tables, f"cats_vs_dogs from {directory}")


def _load_published(directory: Path) -> LoadedDataSet:
    # tensorflow_datasets leaves out the files that are no JFIF, 1,738 of 25,000: the published count is without them.
    table = _table(directory, [name.title() for name in _NAMES], only_jfif=True)
    return LoadedDataSet({"train": table}, f"cats_vs_dogs from {directory}")


def _table(directory: Path, kinds: Sequence[str], only_jfif: bool = False) -> Table:
    files: list[Path] = []
    labels: list[int] = []
    for label, kind in enumerate(kinds):
        pictures = sorted(p for p in (directory / kind).glob("*.jpg") if not only_jfif or _is_jfif(p))
        if not pictures:
            raise InputError(f"{directory / kind} must hold JPEG files, *.jpg. Received: none. Put them there.")
        files += pictures
        labels += [label] * len(pictures)
    # Cats come first in the directory: any slice should hold both.
    order = fixed_order(len(files))
    paths = np.empty(len(files), object)
    # Bytes, as text in elements is; names need not be UTF-8.
    paths[:] = [os.fsencode(files[i]) for i in order]
    return Table({"image": paths, "label": np.array(labels, np.int64)[order]}, {"image": _read_picture})


def _is_jfif(file: Path) -> bool:
    with file.open("rb") as content:
        return b"JFIF" in content.read(10)


def _read_picture(path: bytes) -> Any:
    """Returns the picture in a file, uint8 (height, width, 3)."""
    # Imported late: only elements that are read need a decoder.
    from lockstep.data.internal import decode_jpeg

    file = Path(os.fsdecode(path))
    content = read(file)
    try:
        return decode_jpeg(content, channels=3)
    except ValueError as error:
        raise InputError(f"{file} is no picture that can be read: {error}") from error


def _unpacked_directory(location: DataLocation) -> Path:
    """Returns the directory with the pictures in Keras' cache, which is made of the archive if it is not there."""
    directory = _download.cache_directory() / "cats_vs_dogs" / _DIRECTORY
    # Published in one step, so it is whole if it is there.
    if directory.is_dir():
        return directory
    (archive,) = location.files("cats_vs_dogs", [PUBLISHED])
    # Unpacked once, also if all workers of a machine start together.
    with download_lock(directory, _UNPACKING_SECONDS):
        if not directory.is_dir():
            _unpack(archive, directory)
    return directory


def _unpack(archive: File, directory: Path) -> None:
    """Makes the directory in one step, so that nobody reads a part of it."""
    temporary = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}")
    try:
        for kind in ("Cat", "Dog"):
            (temporary / _DIRECTORY / kind).mkdir(parents=True)
        with zipfile.ZipFile(io.BytesIO(archive.content)) as pictures:
            # Only names of this form: a path such as ../x must not leave the directory.
            for name in filter(_PICTURE.fullmatch, pictures.namelist()):
                (temporary / name).write_bytes(pictures.read(name))
        (temporary / _DIRECTORY).rename(directory)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{archive.path} is no complete .zip archive: {error}. Delete it.") from error
    except OSError as error:
        raise DataNotFoundError(
            f"cats_vs_dogs cannot be unpacked to {directory}: {error.strerror}. Make room there, or unpack {_URL} "
            "elsewhere and let LOCKSTEP_DATA_DIR name the directory that holds PetImages/."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


DATA_SETS = [
    DataSet(
        name="cats_vs_dogs",
        description="Photographs of cats and dogs of many sizes. As published there is one split, train.",
        homepage="https://www.microsoft.com/en-us/download/details.aspx?id=54765",
        features=FeaturesDict({"image": Image((None, None, 3)), "label": ClassLabel(names=_NAMES)}),
        supervised_keys=("image", "label"),
        sizes={"train": 23_262},
        load=_load,
    )
]
