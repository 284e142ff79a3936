"""Functions of text that columns run on the host; serializable, so that an export can hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lockstep.estimator.feature_column._columns import missing
from lockstep.estimator.feature_column._fingerprints import fingerprints

# Devices get int32: JAX has no 64 bits unless it is told to.
_MISSING = missing(np.int32)


class TextBuckets:
    """The buckets of text by its fingerprint; "" is nothing."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, texts: np.ndarray) -> np.ndarray:
        """Returns a bucket for each of an array of bytes."""
        return np.where(texts == b"", _MISSING, _buckets(texts, self._count))

    def to_json(self) -> dict[str, Any]:
        """Returns the arguments for `from_json`."""
        return {"kind": "column_buckets", "count": self._count}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TextBuckets:
        """Creates the function from `to_json`'s result."""
        return cls(int(document["count"]))


class FingerprintHalf:
    """The upper or lower 32 bits of texts' fingerprints."""

    def __init__(self, is_upper: bool) -> None:
        self._is_upper = is_upper

    def __call__(self, texts: np.ndarray) -> np.ndarray:
        """Returns uint32 for each of an array of bytes."""
        hashes = fingerprints(texts)
        return (hashes >> np.uint64(32) if self._is_upper else hashes).astype(np.uint32)

    def to_json(self) -> dict[str, Any]:
        """Returns the arguments for `from_json`."""
        return {"kind": "column_fingerprint", "is_upper": self._is_upper}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FingerprintHalf:
        """Creates the function from `to_json`'s result."""
        return cls(bool(document["is_upper"]))


class VocabularyLookup:
    """Categories of words by a vocabulary; "" marks a missing value.

    Other words get a bucket after the vocabulary, or `default_value` if there are none.
    """

    def __init__(self, words: Sequence[bytes], default_value: int, num_oov_buckets: int) -> None:
        self._numbers = {word: number for number, word in enumerate(words)}
        self._default_value = default_value
        self._num_oov_buckets = num_oov_buckets

    def __call__(self, texts: np.ndarray) -> np.ndarray:
        """Returns a number for each of an array of bytes."""
        numbers = np.fromiter((self._numbers.get(text, -1) for text in texts.ravel()), np.int64, texts.size)
        numbers = numbers.reshape(texts.shape)
        others = numbers < 0
        if self._num_oov_buckets:
            numbers[others] = _buckets(texts[others], self._num_oov_buckets) + len(self._numbers)
        else:
            numbers[others] = self._default_value
        return np.where(texts == b"", _MISSING, numbers)

    def to_json(self) -> dict[str, Any]:
        """Returns the arguments for `from_json`."""
        # surrogateescape: JSON has text only, and words of a file need not be UTF-8.
        words = [word.decode("utf-8", "surrogateescape") for word in self._numbers]
        others = {"default_value": self._default_value, "num_oov_buckets": self._num_oov_buckets}
        return {"kind": "column_vocabulary", "words": words, **others}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> VocabularyLookup:
        """Creates the function from `to_json`'s result."""
        words = [word.encode("utf-8", "surrogateescape") for word in document["words"]]
        return cls(words, int(document["default_value"]), int(document["num_oov_buckets"]))


# The remainder of all 64 bits, as TensorFlow's StringToHashBucketFast: the buckets of saved models depend on it.
def _buckets(texts: np.ndarray, count: int) -> np.ndarray:
    return (fingerprints(texts) % np.uint64(count)).astype(np.int64)


# By the "kind" in JSON; lockstep.saved_model finds this module by it, so that an export runs without a model_fn.
from_json = {
    "column_buckets": TextBuckets.from_json,
    "column_fingerprint": FingerprintHalf.from_json,
    "column_vocabulary": VocabularyLookup.from_json,
}


def from_document(document: Mapping[str, Any]) -> Any:
    """Creates a function of this module from `to_json`'s result."""
    return from_json[document["kind"]](document)
