"""Functions that compute integers for text on the host, as JSON.

A function that can be exported has a method `to_json()` whose result holds its kind, as "kind", and what else it is
made of. How one is made again from that is known here for each kind; nothing that JSON says is imported or evaluated.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep.errors import ArgumentError, UnsupportedError

_Array = np.ndarray[Any, np.dtype[Any]]
HostFunction = Callable[[_Array], _Array]
# Kind: "module:function", where the function takes the JSON and returns the function that it came of.
_KINDS: dict[str, str] = {
    "vocabulary": f"{__name__}:vocabulary_from_json",
    "column_buckets": "lockstep.estimator.feature_column._host:from_document",
    "column_fingerprint": "lockstep.estimator.feature_column._host:from_document",
    "column_vocabulary": "lockstep.estimator.feature_column._host:from_document",
}


class VocabularyIds:
    """Positions of words in a vocabulary.

    Args:
        words: The vocabulary.
        default: What stands for other words.

    Raises:
        ArgumentError: If a word is in it twice.
    """

    def __init__(self, words: Sequence[bytes | str], default: int = -1) -> None:
        self._words = [word.encode() if isinstance(word, str) else bytes(word) for word in words]
        self._default = int(default)
        self._positions = {word: position for position, word in enumerate(self._words)}
        if len(self._positions) < len(self._words):
            raise ArgumentError("A vocabulary holds each word once. Received one that repeats a word.")

    def __call__(self, text: _Array) -> _Array:
        """Returns a position for each of an array of `bytes`."""
        found = [self._positions.get(word, self._default) for word in text.reshape(-1).tolist()]
        return np.array(found, np.int64).reshape(text.shape)

    def to_json(self) -> dict[str, Any]:
        """Returns what it is made of."""
        # Words need not be UTF-8: other bytes become lone surrogates, which JSON keeps as escapes.
        words = [word.decode("utf-8", "surrogateescape") for word in self._words]
        return {"kind": "vocabulary", "words": words, "default": self._default}


def vocabulary_from_json(document: Mapping[str, Any]) -> VocabularyIds:
    """Makes a `VocabularyIds` again."""
    words = [word.encode("utf-8", "surrogateescape") for word in document["words"]]
    return VocabularyIds(words, document["default"])


def as_json(function: Any) -> dict[str, Any]:
    """Returns a function as JSON; raises `UnsupportedError` if it cannot be made again from that."""
    to_json = getattr(function, "to_json", None)
    document = to_json() if callable(to_json) else None
    if not isinstance(document, dict) or document.get("kind") not in _KINDS:
        raise UnsupportedError(
            "What turns text into numbers in an export must be known to lockstep, because an export holds no code of "
            f"the host. Received: {function!r}. Use a column of lockstep.estimator.feature_column (vocabulary list, "
            "hash bucket) or lockstep.saved_model.VocabularyIds, or let callers give the numbers."
        )
    # Through text, so that it holds nothing but what comes back from a file.
    return json.loads(json.dumps(document))


def from_json(document: Mapping[str, Any]) -> HostFunction:
    """Returns the function that some JSON came of; raises `ArgumentError` if it is unknown, or lacks something."""
    kind = document.get("kind")
    if kind not in _KINDS:
        raise ArgumentError(f"There is no function of the kind {kind!r:.60} here. It takes a newer lockstep.")
    # Imported only now: what looks words up must not need feature columns.
    module, _, name = _KINDS[kind].partition(":")
    try:
        return getattr(importlib.import_module(module), name)(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(f"The function of the kind {kind!r} is not understood: {error!r}") from error
