"""Reviews of films as numbers of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._features import ClassLabel, FeaturesDict, Tokens
from lockstep.datasets._place import DataLocation
from lockstep.datasets._sets import _acl_imdb
from lockstep.datasets._sets._acl_imdb import Reviews

# Keras' conventions: 0 pads, 1 begins a review, 2 is a word that is not in the vocabulary, 4 the most frequent word.
_SPECIAL = ["[PAD]", "[START]", "[UNK]", "[UNUSED]"]
_START, _UNKNOWN = 1, 2
# What Keras' text_to_word_sequence takes for the gaps between words.
_GAPS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))


def _load(location: DataLocation) -> LoadedDataSet:
    reviews, source = _acl_imdb.load("imdb", location)
    split_words = {split: [_words(text) for text in reviews[split].texts] for split in ("train", "test")}
    vocabulary = _vocabulary(split_words["train"])
    numbers = {word: number for number, word in enumerate(vocabulary)}
    tables = {split: _table(words, reviews[split], numbers) for split, words in split_words.items()}
    return LoadedDataSet(tables, f"imdb from {source}", features=_features(vocabulary))


def _words(text: bytes) -> list[str]:
    return text.decode("utf-8", "replace").lower().translate(_GAPS).split()


def _vocabulary(reviews: Iterable[list[str]]) -> list[str]:
    """Returns the words by their frequency in the training reviews, equally frequent ones in alphabetical order."""
    # Of the training reviews alone, so that nothing of the test set enters the vocabulary.
    counts = Counter(word for words in reviews for word in words)
    return _SPECIAL + sorted(counts, key=lambda word: (-counts[word], word))


def _table(split_words: list[list[str]], reviews: Reviews, numbers: Mapping[str, int]) -> Table:
    # Keras' load_data(start_char=1, oov_char=2).
    rows = [[_START, *(numbers.get(word, _UNKNOWN) for word in words)] for words in split_words]
    ends = np.cumsum([0, *map(len, rows)])
    # One flat array and the offsets in it: rows differ in length, and a table has columns of one shape.
    flat = np.fromiter((number for row in rows for number in row), np.int64, ends[-1])
    columns: dict[str, NDArray[Any]] = {"tokens": np.arange(len(rows)), "label": reviews.labels}
    return Table(columns, {"tokens": _Rows(flat, ends)})


@dataclass(frozen=True, eq=False)
class _Rows:
    """Sequences of different lengths, one after another."""

    flat: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __call__(self, row: Any) -> NDArray[np.int64]:
        index = int(row)
        return self.flat[self.ends[index] : self.ends[index + 1]]


def _features(vocabulary: list[str]) -> FeaturesDict:
    return FeaturesDict({"tokens": Tokens(vocabulary), "label": ClassLabel(names=_acl_imdb.NAMES)})


DATA_SET = DataSet(
    name="imdb",
    description=(
        "The 50,000 labelled reviews of imdb_reviews as numbers of words, by Keras' conventions: 0 pads, 1 begins a "
        "review, 2 is an unknown word, and from 4 on words by their frequency in the training reviews. Not the arrays "
        "of keras.datasets.imdb, which are published as a pickle: order and numbers differ. "
        "info.features['tokens'].vocabulary has the words."
    ),
    homepage=_acl_imdb.HOMEPAGE,
    features=_features(_SPECIAL),
    supervised_keys=("tokens", "label"),
    sizes={"train": 25_000, "test": 25_000},
    load=_load,
)
