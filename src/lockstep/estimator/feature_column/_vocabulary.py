"""Categorical columns of text or integers in a vocabulary: a list, or a file."""

from __future__ import annotations

import functools
import logging
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import DType
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _features
from lockstep.estimator.feature_column._categorical import FeatureCategories, check_bucket_count
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._fingerprints import decimal_fingerprints
from lockstep.estimator.feature_column._host import VocabularyLookup

_logger = logging.getLogger("lockstep")
_GZIP_RECORDS = "tfrecord_gzip"


class VocabularyColumn(FeatureCategories):
    """Base of columns of words; others get `default_value`, or one of `num_oov_buckets` after the vocabulary."""

    default_value: int
    num_oov_buckets: int

    @abstractmethod
    def _words(self) -> tuple[Any, ...]:
        """Returns the words, bytes or int, in the order of their categories."""

    def _compute(self, features: Features) -> jax.Array:
        if self.dtype == _features.TEXT:
            lookup = VocabularyLookup(self._words(), self.default_value, self.num_oov_buckets)
            return features.codes(self.key, lookup)
        return super()._compute(features)

    def _integer_ids(self, values: jax.Array) -> jax.Array:
        words = np.asarray(self._words(), np.int64)
        if self.num_oov_buckets:
            others = decimal_fingerprints(values) % self.num_oov_buckets + len(words)
        else:
            others = jnp.full(values.shape, self.default_value, jnp.int32)
        limits = jnp.iinfo(values.dtype)
        order = np.argsort(words)
        # Words beyond the feature's dtype would wrap around in it and match others.
        numbers = order[(words[order] >= limits.min) & (words[order] <= limits.max)]
        if not len(numbers):
            return others
        # Binary search on the device: a hash table would need the host in each step.
        sorted_words = jnp.asarray(words[numbers].astype(values.dtype))
        index = jnp.clip(jnp.searchsorted(sorted_words, values), 0, len(numbers) - 1)
        return jnp.where(sorted_words[index] == values, jnp.asarray(numbers.astype(np.int32))[index], others)


@dataclass(frozen=True)
class VocabularyListCategoricalColumn(VocabularyColumn):
    """Column of `categorical_column_with_vocabulary_list`."""

    key: str
    vocabulary_list: tuple[Any, ...]
    dtype: np.dtype[Any]
    default_value: int
    num_oov_buckets: int

    @property
    def num_buckets(self) -> int:
        return len(self.vocabulary_list) + self.num_oov_buckets

    def _words(self) -> tuple[Any, ...]:
        return _to_bytes(self.vocabulary_list)


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
    key = _features.check_key(key)
    words = _check_list(vocabulary_list, key)
    kind = _features.to_categorical_dtype(np.asarray(words).dtype, key)
    numpy_dtype = kind if dtype is None else _features.to_categorical_dtype(dtype, key)
    if _features.is_integer(numpy_dtype) != _features.is_integer(kind):
        raise ArgumentError(
            "dtype and the words of vocabulary_list agree. Received for "
            f"{key!r}: {_features.dtype_name(numpy_dtype)} and {_features.dtype_name(kind)}. Leave the dtype out."
        )
    # -1 is the default and stands for none, so it does not contradict buckets.
    _check_out_of_vocabulary(key, default_value if default_value != -1 else None, num_oov_buckets)
    return VocabularyListCategoricalColumn(key, words, numpy_dtype, default_value, num_oov_buckets)


@dataclass(frozen=True)
class VocabularyFileCategoricalColumn(VocabularyColumn):
    """Column of `categorical_column_with_vocabulary_file`."""

    key: str
    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: np.dtype[Any]
    default_value: int
    file_format: str | None

    @property
    def num_buckets(self) -> int:
        return self.vocabulary_size + self.num_oov_buckets

    def _words(self) -> tuple[Any, ...]:
        words: tuple[Any, ...] = _read(self.vocabulary_file, self.file_format, self.key)[: self.vocabulary_size]
        if len(words) < self.vocabulary_size:
            raise ArgumentError(
                f"vocabulary_size must not exceed the number of words in {self.vocabulary_file}. Received for "
                f"{self.key!r}: {self.vocabulary_size}, and {len(words)} words. Leave it out to take all."
            )
        if self.dtype != _features.TEXT:
            try:
                words = tuple(map(int, words))
            except ValueError as error:
                raise ArgumentError(
                    f"A vocabulary of integers has one in each line. Received, in {self.vocabulary_file}: {error}."
                ) from error
        lines: dict[Any, int] = {}
        for line, word in enumerate(words, 1):
            if lines.setdefault(word, line) != line:
                raise ArgumentError(
                    f"A vocabulary holds each word once. Received, in {self.vocabulary_file}: {word!r} in lines "
                    f"{lines[word]} and {line}."
                )
        return words


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    dtype: DType = "string",
    default_value: int | None = None,
    num_oov_buckets: int = 0,
    file_format: str | None = None,
) -> VocabularyFileCategoricalColumn:
    """Describes a feature of words, or integers, in a file with one per line; "" and -1 mark missing values.

    Args:
        key: The feature's name.
        vocabulary_file: Path of the file, or of a compressed TFRecord file.
        vocabulary_size: Number of words to use, from the first; `None` for all.
        dtype: Text or an integer dtype.
        default_value: The category of a word that is not in the file; `None` and -1 for no category.
        num_oov_buckets: Number of buckets for such words instead, by TensorFlow's hash function.
        file_format: "tfrecord_gzip" for a compressed TFRecord file, `None` for text; by the name for "*tfrecord.gz".

    Raises:
        ArgumentError: If an argument is invalid, or there is no such file.

    Source: tf.feature_column.categorical_column_with_vocabulary_file.
    """
    key, path = _features.check_key(key), os.fspath(vocabulary_file) if vocabulary_file else ""
    if not path:
        raise ArgumentError(f"vocabulary_file is the path of a file. Received for {key!r}: {vocabulary_file!r}.")
    _check_out_of_vocabulary(key, default_value, num_oov_buckets)
    if file_format is None:
        # TensorFlow's rule of names, too.
        file_format = _GZIP_RECORDS if path.endswith("tfrecord.gz") else None
    elif file_format != _GZIP_RECORDS:
        raise ArgumentError(f"file_format is 'tfrecord_gzip', or None for text. Received for {key!r}: {file_format!r}.")
    if vocabulary_size is None:
        # Counted now: the sizes of variables are known before a model_fn reads the words. The message is TensorFlow's.
        vocabulary_size = len(_read(path, file_format, key))
        _logger.info(
            "vocabulary_size = %d in %s is inferred from the number of elements in the vocabulary_file %s.",
            vocabulary_size,
            key,
            path,
        )
    return VocabularyFileCategoricalColumn(
        key,
        path,
        check_bucket_count("vocabulary_size", vocabulary_size, key),
        num_oov_buckets or 0,
        _features.to_categorical_dtype(dtype, key),
        -1 if default_value is None else default_value,
        file_format,
    )


def _check_list(vocabulary_list: Iterable[Any] | None, key: str) -> tuple[Any, ...]:
    # numpy's scalars are compared and hashed as Python's, so that a column equals itself made from a list.
    elements = () if vocabulary_list is None else vocabulary_list
    words = tuple(element.item() if isinstance(element, np.generic) else element for element in elements)
    if not words:
        raise ArgumentError(f"vocabulary_list holds at least one word. Received for {key!r}: {vocabulary_list!r}.")
    if len(set(_to_bytes(words))) != len(words):
        raise ArgumentError(f"vocabulary_list holds each word once. Received for {key!r}: {vocabulary_list!r}.")
    return words


def _to_bytes(words: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(word.encode() if isinstance(word, str) else word for word in words)


def _check_out_of_vocabulary(key: str, default_value: int | None, num_oov_buckets: int | None) -> None:
    """Checks that the arguments for words outside of the vocabulary do not contradict each other."""
    # TensorFlow's rule: with buckets no word would ever get the default.
    if num_oov_buckets and default_value is not None:
        raise ArgumentError(
            "Words that are not in the vocabulary are either put into num_oov_buckets or get the default_value. "
            f"Received for {key!r}: both. Leave one of them out."
        )
    if num_oov_buckets and num_oov_buckets < 0:
        raise ArgumentError(f"num_oov_buckets must not be negative. Received for {key!r}: {num_oov_buckets!r}.")


def _read(path: str, file_format: str | None, key: str) -> tuple[bytes, ...]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise ArgumentError(f"vocabulary_file must exist. Received for {key!r}: {path} ({error.strerror}).") from error
    return _read_words(path, file_format, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=8)
def _read_words(path: str, file_format: str | None, changed: int, size: int) -> tuple[bytes, ...]:
    # Cached, since a model_fn is traced several times; by time and size, since a program may write the file anew.
    if file_format == _GZIP_RECORDS:
        from lockstep.data import TFRecordDataset

        return tuple(bytes(record) for record in TFRecordDataset(path, compression_type="GZIP").as_numpy_iterator())
    # As TensorFlow reads lines: carriage returns go, and a last line without a newline counts.
    lines = Path(path).read_bytes().replace(b"\r", b"").split(b"\n")
    return tuple(lines[:-1] if not lines[-1] else lines)
