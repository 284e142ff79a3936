"""Photographs of cats and dogs, JPEG files that are decoded when they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._arrays import fixed_order
from lockstep.datasets._data_dir import find_directory, missing_data_error
from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._features import ClassLabel, FeaturesDict, Image
from lockstep.datasets._place import DataLocation, read
from lockstep.datasets._sets import _pet_images
from lockstep.errors import InputError

_NAMES = ["cat", "dog"]


def _load(location: DataLocation) -> LoadedDataSet:
    if location.root is None:
        return _load_published_layout(_pet_images.obtain(location))
    published = find_directory(location.root, "cats_vs_dogs", [_pet_images.DIRECTORY])
    if published is not None:
        return _load_published_layout(published)
    directory = find_directory(location.root, "cats_vs_dogs", ["."])
    if directory is None or not any((directory / split).is_dir() for split in ("train", "test")):
        raise missing_data_error(
            location.root,
            "that holds cats_vs_dogs/train/cat/*.jpg and so on, or cats_vs_dogs/PetImages/Cat/*.jpg and so on, as in "
            f"{_pet_images.URL}",
            "Put the files there",
            location.setting,
        )
    return _load_split_layout(directory)


def _load_split_layout(directory: Path) -> LoadedDataSet:
    """Loads the layout {train,test}/{cat,dog}/*.jpg."""
    splits = [split for split in ("train", "test") if (directory / split).is_dir()]
    tables = {split: _table(directory / split, _NAMES) for split in splits}
    return LoadedDataSet(tables, f"cats_vs_dogs from {directory}")


def _load_published_layout(directory: Path) -> LoadedDataSet:
    """Loads the layout PetImages/{Cat,Dog}/*.jpg."""
    # tensorflow_datasets leaves out the files that are no JFIF, 1,738 of 25,000: the published count is without them.
    table = _table(directory, [name.title() for name in _NAMES], _pet_images.is_usable)
    return LoadedDataSet({"train": table}, f"cats_vs_dogs from {directory}")


def _table(directory: Path, kinds: Sequence[str], usable: Callable[[Path], bool] | None = None) -> Table:
    files: list[Path] = []
    labels: list[int] = []
    for label, kind in enumerate(kinds):
        pictures = sorted(filter(usable, (directory / kind).glob("*.jpg")))
        if not pictures:
            raise InputError(f"{directory / kind} must hold JPEG files, *.jpg. Received: none. Put them there.")
        files += pictures
        labels += [label] * len(pictures)
    # Cats come first in the directory: any slice should hold both.
    order = fixed_order(len(files))
    return Table(
        {"image": _paths(files[i] for i in order), "label": np.array(labels, np.int64)[order]}, {"image": _picture}
    )


def _paths(files: Iterable[Path]) -> NDArray[np.object_]:
    # Bytes, as text in elements is; names need not be UTF-8.
    paths = [os.fsencode(file) for file in files]
    result = np.empty(len(paths), object)
    result[:] = paths
    return result


def _picture(path: bytes) -> Any:
    """Returns the picture in a file, uint8 (height, width, 3)."""
    # Imported late: only elements that are read need a decoder.
    from lockstep.data.internal import decode_jpeg

    file = Path(os.fsdecode(path))
    content = read(file)
    try:
        return decode_jpeg(content, channels=3)
    except ValueError as error:
        raise InputError(f"{file} is no picture that can be read: {error}") from error


DATA_SET = DataSet(
    name="cats_vs_dogs",
    description="Photographs of cats and dogs of many sizes. As published there is one split, train.",
    homepage="https://www.microsoft.com/en-us/download/details.aspx?id=54765",
    features=FeaturesDict({"image": Image((None, None, 3)), "label": ClassLabel(names=_NAMES)}),
    supervised_keys=("image", "label"),
    sizes={"train": 23_262},
    load=_load,
)
