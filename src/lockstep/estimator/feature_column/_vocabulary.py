"""Categorical columns of text or integers in a vocabulary list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import DType
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _decimal, _kinds
from lockstep.estimator.feature_column._columns import CategoricalColumn, Ids, missing
from lockstep.estimator.feature_column._features import Features, integer_feature
from lockstep.estimator.feature_column._hashed import check_kind, is_missing, variable_length
from lockstep.estimator.feature_column._host import VocabularyLookup

_MISSING = missing(np.int32)


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of words or integers, and the categories of others.

    Attributes:
        words: bytes or int, in the order of their categories.
        default_value: The category of others.
        num_oov_buckets: Number of buckets for other words, after the vocabulary; 0 for `default_value`.
    """

    words: tuple[Any, ...]
    default_value: int
    num_oov_buckets: int

    def text_lookup(self) -> VocabularyLookup:
        """Returns the lookup of text, for the host."""
        return VocabularyLookup(self.words, self.default_value, self.num_oov_buckets)

    def of_integers(self, values: jax.Array, key: str) -> jax.Array:
        """Looks integers up, on the device."""
        words = np.asarray(self.words, np.int64)
        limits = jnp.iinfo(values.dtype)
        order = np.argsort(words)
        # Words beyond the feature's dtype would wrap around in it and match others.
        inside = order[(words[order] >= limits.min) & (words[order] <= limits.max)]
        return jnp.where(is_missing(values), _MISSING, self._look_up(values, words[inside], inside))

    def _look_up(self, values: jax.Array, words: np.ndarray, numbers: np.ndarray) -> jax.Array:
        others = self._out_of_vocabulary(values)
        if not len(words):
            return others
        # Binary search on the device: a hash table would need the host in each step.
        sorted_words = jnp.asarray(words.astype(values.dtype))
        index = jnp.clip(jnp.searchsorted(sorted_words, values), 0, len(words) - 1)
        return jnp.where(sorted_words[index] == values, jnp.asarray(numbers.astype(np.int32))[index], others)

    def _out_of_vocabulary(self, values: jax.Array) -> jax.Array:
        if not self.num_oov_buckets:
            return jnp.full(values.shape, self.default_value, jnp.int32)
        return _decimal.fingerprints(values) % self.num_oov_buckets + len(self.words)


def categories_of(features: Features, key: str, dtype: np.dtype[Any], vocabulary: Callable[[], Vocabulary]) -> Ids:
    """Returns the categories of a feature."""
    check_kind(features, key, dtype)
    if dtype == _kinds.TEXT:
        return Ids(features.codes(key, vocabulary().text_lookup()))
    return Ids(vocabulary().of_integers(integer_feature(features, key), key))


@dataclass(frozen=True)
class VocabularyListCategoricalColumn(CategoricalColumn):
    """Column of `categorical_column_with_vocabulary_list`."""

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
        return features.cached(self, lambda: categories_of(features, self.key, self.dtype, self._vocabulary))

    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(_words(self.vocabulary_list), self.default_value, self.num_oov_buckets)


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[Any],
    dtype: DType | None = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyListCategoricalColumn:
    """Describes a feature of words, or integers, in a list; "" and -1 mark missing values.

    Args:
        key: The feature's name.
        vocabulary_list: The words, or integers, in the order of their categories.
        dtype: Text or an integer dtype; `None` for the list's.
        default_value: The category of a word that is not in the list; -1 for no category.
        num_oov_buckets: Number of buckets for such words instead, by TensorFlow's hash function.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.categorical_column_with_vocabulary_list.
    """
    words = _check_list(vocabulary_list, _kinds.check_key(key))
    kind = _kinds.to_categorical_dtype(np.asarray(words).dtype, key)
    numpy_dtype = kind if dtype is None else _kinds.to_categorical_dtype(dtype, key)
    if _kinds.is_integer(numpy_dtype) != _kinds.is_integer(kind):
        raise ArgumentError(
            f"dtype and the words of vocabulary_list agree. Received for {key!r}: {_kinds.dtype_name(numpy_dtype)} and "
            f"{_kinds.dtype_name(kind)}. Leave the dtype out."
        )
    check_out_of_vocabulary(key, default_value if default_value != -1 else None, num_oov_buckets)
    return VocabularyListCategoricalColumn(key, words, numpy_dtype, default_value, num_oov_buckets)


def _check_list(vocabulary_list: Iterable[str | bytes | int] | None, key: str) -> tuple[Any, ...]:
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


def check_out_of_vocabulary(key: str, default_value: int | None, num_oov_buckets: int | None) -> None:
    """Checks the arguments for out-of-vocabulary words.

    Raises:
        ArgumentError: If an argument is invalid, or both are given.
    """
    if num_oov_buckets and default_value is not None:
        raise ArgumentError(
            "Words that are not in the vocabulary are either put into num_oov_buckets or get the default_value. "
            f"Received for {key!r}: both. Leave one of them out."
        )
    if num_oov_buckets and num_oov_buckets < 0:
        raise ArgumentError(f"num_oov_buckets must not be negative. Received for {key!r}: {num_oov_buckets!r}.")
