"""Columns of text or integers from a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.errors import ArgumentError
from lockstep.feature_column import _decimal, _kinds
from lockstep.feature_column._columns import CategoricalColumn, Ids, missing
from lockstep.feature_column._features import Features, integers
from lockstep.feature_column._hashed import check_kind, is_missing, variable_length
from lockstep.feature_column._host import WordNumbers

_MISSING = missing(np.int32)


@dataclass(frozen=True)
class Vocabulary:
    """Words, or integers, and what is done with others.

    Attributes:
        words: bytes or int, in the order of their numbers.
        default_value: The number of others.
        num_oov_buckets: Into how many buckets others are put, behind the words; 0 for `default_value`.
    """

    words: tuple[Any, ...]
    default_value: int
    num_oov_buckets: int

    def of_text(self) -> WordNumbers:
        """Returns what numbers text, on the host."""
        return WordNumbers(self.words, self.default_value, self.num_oov_buckets)

    def of_integers(self, values: jax.Array, key: str) -> jax.Array:
        """Returns the numbers of integers, on the device."""
        words = np.asarray(self.words, np.int64)
        limits = jnp.iinfo(values.dtype)
        order = np.argsort(words)
        inside = order[(words[order] >= limits.min) & (words[order] <= limits.max)]
        return jnp.where(is_missing(values), _MISSING, self._looked_up(values, words[inside], inside))

    def _looked_up(self, values: jax.Array, words: np.ndarray, numbers: np.ndarray) -> jax.Array:
        others = self._other_integers(values)
        if not len(words):
            return others
        sorted_words = jnp.asarray(words.astype(values.dtype))
        place = jnp.clip(jnp.searchsorted(sorted_words, values), 0, len(words) - 1)
        return jnp.where(sorted_words[place] == values, jnp.asarray(numbers.astype(np.int32))[place], others)

    def _other_integers(self, values: jax.Array) -> jax.Array:
        if not self.num_oov_buckets:
            return jnp.full(values.shape, self.default_value, jnp.int32)
        return _decimal.fingerprints(values) % self.num_oov_buckets + len(self.words)


def ids_of(features: Features, key: str, dtype: np.dtype[Any], vocabulary: Callable[[], Vocabulary]) -> Ids:
    """Returns the categories of a feature."""
    check_kind(features, key, dtype)
    if dtype == _kinds.TEXT:
        return Ids(features.codes(key, vocabulary().of_text()))
    return Ids(vocabulary().of_integers(integers(features, key), key))


@dataclass(frozen=True)
class VocabularyListCategoricalColumn(CategoricalColumn):
    """What `categorical_column_with_vocabulary_list` returns; see there."""

    key: str
    vocabulary_list: tuple[Any, ...]
    dtype: np.dtype[Any]
    default_value: int
    num_oov_buckets: int

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return variable_length(self.key, self.dtype)

    @property
    def num_buckets(self) -> int:
        return len(self.vocabulary_list) + self.num_oov_buckets

    def ids(self, features: Features) -> Ids:
        return features.once(self, lambda: ids_of(features, self.key, self.dtype, self._vocabulary))

    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(_words(self.vocabulary_list), self.default_value, self.num_oov_buckets)


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[Any],
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyListCategoricalColumn:
    """Describes a feature of words, or integers, from a list; "" and -1 stand for no value.

    Args:
        key: Its name.
        vocabulary_list: The words, or integers, in the order of their numbers.
        dtype: Text or a type of integers; `None` for what the list holds.
        default_value: The number of a word that is not in the list; -1 for no category.
        num_oov_buckets: Into how many buckets such words are put instead, by the hash function that TensorFlow uses.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.feature_column.categorical_column_with_vocabulary_list.
    """
    words = _checked_list(vocabulary_list, _kinds.checked_key(key))
    kind = _kinds.text_or_integer(np.asarray(words).dtype, key)
    found = kind if dtype is None else _kinds.text_or_integer(dtype, key)
    if _kinds.is_integer(found) != _kinds.is_integer(kind):
        raise ArgumentError(
            f"dtype and the words of vocabulary_list agree. Received for {key!r}: {_kinds.described(found)} and "
            f"{_kinds.described(kind)}. Leave the dtype out."
        )
    check_others(key, default_value if default_value != -1 else None, num_oov_buckets)
    return VocabularyListCategoricalColumn(key, words, found, default_value, num_oov_buckets)


def _checked_list(vocabulary_list: Any, key: str) -> tuple[Any, ...]:
    words = (
        () if vocabulary_list is None else tuple(w.item() if isinstance(w, np.generic) else w for w in vocabulary_list)
    )
    if not words:
        raise ArgumentError(f"vocabulary_list holds at least one word. Received for {key!r}: {vocabulary_list!r}.")
    if len(set(_words(words))) != len(words):
        raise ArgumentError(f"vocabulary_list holds each word once. Received for {key!r}: {vocabulary_list!r}.")
    return words


def _words(words: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(word.encode() if isinstance(word, str) else word for word in words)


def check_others(key: str, default_value: int | None, num_oov_buckets: Any) -> None:
    """Checks what is to be done with words that a vocabulary lacks.

    Raises:
        ArgumentError: If the arguments are wrong or say two things.
    """
    if num_oov_buckets and default_value is not None:
        raise ArgumentError(
            "Words that are not in the vocabulary are either put into num_oov_buckets or get the default_value. "
            f"Received for {key!r}: both. Leave one of them out."
        )
    if num_oov_buckets and num_oov_buckets < 0:
        raise ArgumentError(f"num_oov_buckets must not be negative. Received for {key!r}: {num_oov_buckets!r}.")
