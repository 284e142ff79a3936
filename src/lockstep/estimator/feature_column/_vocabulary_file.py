"""Categorical columns of words in a vocabulary file."""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._types import DType
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _kinds
from lockstep.estimator.feature_column._columns import CategoricalColumn, Ids
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._hashed import check_bucket_count, variable_length
from lockstep.estimator.feature_column._vocabulary import Vocabulary, categories_of, check_out_of_vocabulary

_logger = logging.getLogger("lockstep")
_GZIP_RECORDS = "tfrecord_gzip"


@dataclass(frozen=True)
class VocabularyFileCategoricalColumn(CategoricalColumn):
    """Column of `categorical_column_with_vocabulary_file`."""

    key: str
    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: np.dtype[Any]
    default_value: int
    file_format: str | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return variable_length(self.key, self.dtype)

    @property
    def num_buckets(self) -> int:
        return self.vocabulary_size + self.num_oov_buckets

    def ids(self, features: Features) -> Ids:
        return features.cached(self, lambda: categories_of(features, self.key, self.dtype, self._vocabulary))

    def _vocabulary(self) -> Vocabulary:
        words: tuple[Any, ...] = _read(self.vocabulary_file, self.file_format, self.key)[: self.vocabulary_size]
        if len(words) < self.vocabulary_size:
            raise ArgumentError(
                f"vocabulary_size must not exceed the number of words in {self.vocabulary_file}. Received for "
                f"{self.key!r}: {self.vocabulary_size}, and {len(words)} words. Leave it out to take all."
            )
        if self.dtype != _kinds.TEXT:
            words = _as_integers(words, self.vocabulary_file)
        _check_once(words, self.vocabulary_file)
        return Vocabulary(words, self.default_value, self.num_oov_buckets)


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
    key, path = _kinds.check_key(key), os.fspath(vocabulary_file) if vocabulary_file else ""
    if not path:
        raise ArgumentError(f"vocabulary_file is the path of a file. Received for {key!r}: {vocabulary_file!r}.")
    check_out_of_vocabulary(key, default_value, num_oov_buckets)
    file_format = _check_format(file_format, path, key)
    size = _count_words(path, file_format, key) if vocabulary_size is None else vocabulary_size
    return VocabularyFileCategoricalColumn(
        key,
        path,
        check_bucket_count("vocabulary_size", size, key),
        num_oov_buckets or 0,
        _kinds.to_categorical_dtype(dtype, key),
        -1 if default_value is None else default_value,
        file_format,
    )


def _check_format(file_format: str | None, path: str, key: str) -> str | None:
    if file_format is None:
        return _GZIP_RECORDS if path.endswith("tfrecord.gz") else None
    if file_format != _GZIP_RECORDS:
        raise ArgumentError(f"file_format is 'tfrecord_gzip', or None for text. Received for {key!r}: {file_format!r}.")
    return file_format


def _count_words(path: str, file_format: str | None, key: str) -> int:
    size = len(_read(path, file_format, key))
    _logger.info(
        "vocabulary_size = %d in %s is inferred from the number of elements in the vocabulary_file %s.", size, key, path
    )
    return size


def _read(path: str, file_format: str | None, key: str) -> tuple[bytes, ...]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise ArgumentError(f"vocabulary_file must exist. Received for {key!r}: {path} ({error.strerror}).") from error
    return _words(path, file_format, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=8)
def _words(path: str, file_format: str | None, changed: int, size: int) -> tuple[bytes, ...]:
    """Reads the words of a file; cached, since a model_fn is traced several times."""
    if file_format == _GZIP_RECORDS:
        from lockstep.data import TFRecordDataset

        return tuple(bytes(record) for record in TFRecordDataset(path, compression_type="GZIP").as_numpy_iterator())
    # As TensorFlow reads lines: carriage returns go, and a last line without a newline counts.
    lines = Path(path).read_bytes().replace(b"\r", b"").split(b"\n")
    return tuple(lines[:-1] if not lines[-1] else lines)


def _as_integers(words: tuple[bytes, ...], path: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, words))
    except ValueError as error:
        raise ArgumentError(f"A vocabulary of integers has one in each line. Received, in {path}: {error}.") from error


def _check_once(words: tuple[Any, ...], path: str) -> None:
    lines: dict[Any, int] = {}
    for line, word in enumerate(words, 1):
        if lines.setdefault(word, line) != line:
            raise ArgumentError(
                f"A vocabulary holds each word once. Received, in {path}: {word!r} in lines {lines[word]} and {line}."
            )
