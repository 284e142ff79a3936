"""Reviews of films: texts, and numbers of their words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table, fixed_order
from lockstep.datasets._download import PublishedFile
from lockstep.datasets._info import ClassLabel, FeaturesDict, Text, Tokens
from lockstep.datasets._location import DataLocation, find_directory, read, read_members
from lockstep.errors import InputError

PUBLISHED = PublishedFile(
    name="aclImdb_v1.tar.gz",
    url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fe7008942e91923d1658fe0",
    patience=10,
)
_HOMEPAGE = "https://ai.stanford.edu/~amaas/data/sentiment/"
_LABEL = ClassLabel(names=["neg", "pos"])
_REVIEW = re.compile(r"(?:^|/)(?P<split>train|test)/(?P<kind>neg|pos|unsup)/[^/]+\.txt$")
_LABELS = {"neg": 0, "pos": 1, "unsup": -1}
# Keras' conventions: 0 pads, 1 begins a review, 2 is a word that is not in the vocabulary, 4 the most frequent word.
_SPECIAL = ["[PAD]", "[START]", "[UNK]", "[UNUSED]"]
_START, _UNKNOWN = 1, 2
# What Keras' text_to_word_sequence takes for the gaps between words.
_GAPS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))


class _Reviews(NamedTuple):
    """The reviews of one split: object (n,) of `bytes`, and int64 (n,), -1 where a review has no label."""

    texts: NDArray[np.object_]
    labels: NDArray[np.int64]


def _read_reviews(data_set: str, location: DataLocation) -> tuple[dict[str, _Reviews], str]:
    """Returns the reviews by split, in a fixed mixed order, and where they were found."""
    unpacked = find_directory(location.root, data_set, ["aclImdb"]) if location.root else None
    if unpacked is not None:
        names = (path.relative_to(unpacked).as_posix() for path in unpacked.glob("*/*/*.txt"))
        contents, source = {name: read(unpacked / name) for name in names if _REVIEW.search(name)}, str(unpacked)
    else:
        (archive,) = location.files(data_set, [PUBLISHED])
        source = str(archive.path)
        contents = read_members(archive.content, lambda name: _REVIEW.search(name) is not None, source)
    groups: dict[str, list[tuple[bytes, int]]] = {"train": [], "test": [], "unsupervised": []}
    # Sorted, because archives and directories list files in different orders: slices must not depend on it.
    for name in sorted(contents):
        match = _REVIEW.search(name)
        assert match is not None
        # In the archive they lie in train/, and are a split of their own in tensorflow_datasets.
        split = "unsupervised" if match["kind"] == "unsup" else match["split"]
        groups[split].append((contents[name].strip(), _LABELS[match["kind"]]))
    if not groups["train"] or not groups["test"]:
        raise InputError(
            f"{source} must hold reviews in train/neg, train/pos, test/neg and test/pos. Received: "
            f"{len(groups['train'])} for training and {len(groups['test'])} for testing. Replace it with a fresh copy."
        )
    return {split: _mix(reviews) for split, reviews in groups.items() if reviews}, source


def _mix(reviews: list[tuple[bytes, int]]) -> _Reviews:
    # Published class by class: without mixing, train[:10%] would hold bad reviews alone.
    order = fixed_order(len(reviews))
    # np.array of bytes would have a fixed width, and drop trailing zero bytes.
    texts = np.empty(len(reviews), object)
    texts[:] = [reviews[i][0] for i in order]
    return _Reviews(texts, np.array([reviews[i][1] for i in order], np.int64))


def _load_texts(location: DataLocation) -> LoadedDataSet:
    reviews, source = _read_reviews("imdb_reviews", location)
    tables = {split: Table({"text": group.texts, "label": group.labels}) for split, group in reviews.items()}
    return LoadedDataSet(tables, f"imdb_reviews from {source}")


def _load_numbers(location: DataLocation) -> LoadedDataSet:
    reviews, source = _read_reviews("imdb", location)
    words = {
        split: [text.decode("utf-8", "replace").lower().translate(_GAPS).split() for text in reviews[split].texts]
        for split in ("train", "test")
    }
    vocabulary = _vocabulary(words["train"])
    numbers = {word: number for number, word in enumerate(vocabulary)}
    tables = {split: _number_table(words[split], reviews[split].labels, numbers) for split in words}
    features = FeaturesDict({"tokens": Tokens(vocabulary), "label": _LABEL})
    return LoadedDataSet(tables, f"imdb from {source}", features=features)


def _vocabulary(reviews: Iterable[list[str]]) -> list[str]:
    """Returns the words by their frequency in the training reviews, equally frequent ones in alphabetical order."""
    # Of the training reviews alone, so that nothing of the test set enters the vocabulary.
    counts = Counter(word for words in reviews for word in words)
    return _SPECIAL + sorted(counts, key=lambda word: (-counts[word], word))


def _number_table(reviews: list[list[str]], labels: NDArray[np.int64], numbers: Mapping[str, int]) -> Table:
    # Keras' load_data(start_char=1, oov_char=2).
    rows = [[_START, *(numbers.get(word, _UNKNOWN) for word in words)] for words in reviews]
    ends = np.cumsum([0, *map(len, rows)])
    # One flat array and the offsets in it: rows differ in length, and a table has columns of one shape.
    flat = np.fromiter((number for row in rows for number in row), np.int64, ends[-1])
    columns: dict[str, NDArray[Any]] = {"tokens": np.arange(len(rows)), "label": labels}
    return Table(columns, {"tokens": partial(_row_of, flat, ends)})


def _row_of(flat: NDArray[np.int64], ends: NDArray[np.int64], row: Any) -> NDArray[np.int64]:
    return flat[ends[int(row)] : ends[int(row) + 1]]


DATA_SETS = [
    DataSet(
        name="imdb_reviews",
        description=(
            "50,000 reviews of films, good or bad, and 50,000 of which that is not told (label -1). The texts are as "
            "published, with HTML's line breaks; keras.datasets.imdb has word numbers instead, see imdb."
        ),
        homepage=_HOMEPAGE,
        features=FeaturesDict({"text": Text(), "label": _LABEL}),
        supervised_keys=("text", "label"),
        sizes={"train": 25_000, "test": 25_000, "unsupervised": 50_000},
        load=_load_texts,
        configs=("plain_text",),
    ),
    DataSet(
        name="imdb",
        description=(
            "The 50,000 labelled reviews of imdb_reviews as numbers of words, by Keras' conventions: 0 pads, 1 begins "
            "a review, 2 is an unknown word, and from 4 on words by their frequency in the training reviews. Not the "
            "arrays of keras.datasets.imdb, which are published as a pickle: order and numbers differ. "
            "info.features['tokens'].vocabulary has the words."
        ),
        homepage=_HOMEPAGE,
        features=FeaturesDict({"tokens": Tokens(_SPECIAL), "label": _LABEL}),
        supervised_keys=("tokens", "label"),
        sizes={"train": 25_000, "test": 25_000},
        load=_load_numbers,
    ),
]
