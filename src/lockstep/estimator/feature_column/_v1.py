"""TensorFlow 1's feature columns: TensorFlow 2's, with two other signatures.

Source: tf.compat.v1.feature_column.
"""

from __future__ import annotations

import os

from lockstep._types import DType
from lockstep.estimator.feature_column import _embedding, _vocabulary
from lockstep.estimator.feature_column._vocabulary import VocabularyFileCategoricalColumn

# Only what differs: compat looks here first, and in lockstep.estimator.feature_column for all other names.
__all__ = ["categorical_column_with_vocabulary_file", "shared_embedding_columns"]

shared_embedding_columns = _embedding.shared_embeddings


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: DType = "string",
) -> VocabularyFileCategoricalColumn:
    """Describes a feature of words from a file; TensorFlow 1's order of arguments.

    Args:
        key: The feature's name.
        vocabulary_file: Path of the file.
        vocabulary_size: Number of words to use, from the first; `None` for all.
        num_oov_buckets: Number of buckets for words that are not in the file.
        default_value: The category of such a word instead; `None` and -1 for none.
        dtype: Text or an integer dtype.

    Raises:
        ArgumentError: If an argument is invalid, or there is no such file.

    Source: tf.compat.v1.feature_column.categorical_column_with_vocabulary_file.
    """
    return _vocabulary.categorical_column_with_vocabulary_file(
        key, vocabulary_file, vocabulary_size, dtype, default_value, num_oov_buckets
    )
