"""Reviews of films, from the archive that Stanford publishes: one file of text for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._archive import read_members
from lockstep.datasets._arrays import fixed_order
from lockstep.datasets._data_dir import find_directory
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._place import DataLocation, read
from lockstep.errors import InputError

PUBLISHED = PublishedFile(
    name="aclImdb_v1.tar.gz",
    url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fe7008942e91923d1658fe0",
    patience=10,
)
HOMEPAGE = "https://ai.stanford.edu/~amaas/data/sentiment/"
NAMES = ["neg", "pos"]
_DIRECTORY = "aclImdb"
_REVIEW = re.compile(r"(?:^|/)(?P<split>train|test)/(?P<kind>neg|pos|unsup)/[^/]+\.txt$")
_LABELS = {"neg": 0, "pos": 1, "unsup": -1}


@dataclass(frozen=True, eq=False)
class Reviews:
    """The reviews of one split.

    Attributes:
        texts: object (n,) of `bytes`.
        labels: int64 (n,): 0 for a bad review, 1 for a good one, -1 if that is unknown.
    """

    texts: NDArray[np.object_]
    labels: NDArray[np.int64]


def load(data_set: str, location: DataLocation) -> tuple[dict[str, Reviews], str]:
    """Returns the reviews by split, in a fixed mixed order, and where they were found."""
    contents, source = _read_unpacked(data_set, location) or _read_archive(data_set, location)
    groups: dict[str, list[str]] = {"train": [], "test": [], "unsupervised": []}
    # Sorted, because archives and directories list files in different orders: slices must not depend on it.
    for name in sorted(contents):
        split, kind = _split_and_kind(name)
        # In the archive they lie in train/, and are a split of their own in tensorflow_datasets.
        groups["unsupervised" if kind == "unsup" else split].append(name)
    if not groups["train"] or not groups["test"]:
        raise InputError(
            f"{source} must hold reviews in train/neg, train/pos, test/neg and test/pos. Received: "
            f"{len(groups['train'])} for training and {len(groups['test'])} for testing. Replace it with a fresh copy."
        )
    return {split: _reviews(contents, names) for split, names in groups.items() if names}, source


def _read_unpacked(data_set: str, location: DataLocation) -> tuple[dict[str, bytes], str] | None:
    directory = find_directory(location.root, data_set, [_DIRECTORY]) if location.root else None
    if directory is None:
        return None
    return {name: read(directory / name) for name in _review_files(directory)}, str(directory)


def _review_files(directory: Path) -> Iterator[str]:
    names = (path.relative_to(directory).as_posix() for path in directory.glob("*/*/*.txt"))
    return (name for name in names if _REVIEW.search(name))


def _read_archive(data_set: str, location: DataLocation) -> tuple[dict[str, bytes], str]:
    (archive,) = location.files(data_set, [PUBLISHED])
    contents = read_members(archive.content, lambda name: _REVIEW.search(name) is not None, str(archive.path))
    return contents, str(archive.path)


def _split_and_kind(name: str) -> tuple[str, str]:
    match = _REVIEW.search(name)
    assert match is not None
    return match["split"], match["kind"]


def _reviews(contents: dict[str, bytes], names: list[str]) -> Reviews:
    # Published class by class: without mixing, train[:10%] would hold bad reviews alone.
    order = fixed_order(len(names))
    # np.array of bytes would have a fixed width, and drop trailing zero bytes.
    texts = np.empty(len(names), object)
    texts[:] = [contents[names[i]].strip() for i in order]
    labels = np.array([_LABELS[_split_and_kind(names[i])[1]] for i in order], np.int64)
    return Reviews(texts, labels)
