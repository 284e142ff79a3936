"""TensorFlow 1's feature columns: TensorFlow 2's, with two other signatures.

Source: tf.compat.v1.feature_column.
"""

from __future__ import annotations

import os

from lockstep._types import DType
from lockstep.estimator.feature_column import _shared_embedding, _vocabulary_file
from lockstep.estimator.feature_column._crossed import crossed_column as crossed_column
from lockstep.estimator.feature_column._dense_features import input_layer as input_layer
from lockstep.estimator.feature_column._embedding import embedding_column as embedding_column
from lockstep.estimator.feature_column._hashed import (
    categorical_column_with_hash_bucket as categorical_column_with_hash_bucket,
)
from lockstep.estimator.feature_column._identity import (
    categorical_column_with_identity as categorical_column_with_identity,
)
from lockstep.estimator.feature_column._indicator import indicator_column as indicator_column
from lockstep.estimator.feature_column._linear_model import linear_model as linear_model
from lockstep.estimator.feature_column._numeric import bucketized_column as bucketized_column
from lockstep.estimator.feature_column._numeric import numeric_column as numeric_column
from lockstep.estimator.feature_column._parse_spec import make_parse_example_spec as make_parse_example_spec
from lockstep.estimator.feature_column._vocabulary import (
    categorical_column_with_vocabulary_list as categorical_column_with_vocabulary_list,
)
from lockstep.estimator.feature_column._weighted import weighted_categorical_column as weighted_categorical_column

__all__ = [
    "bucketized_column",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "crossed_column",
    "embedding_column",
    "indicator_column",
    "input_layer",
    "linear_model",
    "make_parse_example_spec",
    "numeric_column",
    "shared_embedding_columns",
    "weighted_categorical_column",
]

shared_embedding_columns = _shared_embedding.shared_embeddings


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: DType = "string",
) -> _vocabulary_file.VocabularyFileCategoricalColumn:
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
    return _vocabulary_file.categorical_column_with_vocabulary_file(
        key, vocabulary_file, vocabulary_size, dtype, default_value, num_oov_buckets
    )
