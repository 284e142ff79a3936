"""Feature columns: descriptions of how features become numbers for a model.

They take dense features, as an input_fn gives them: numbers or text of shape (batch,), (batch, 1) or (batch, n). In
columns of categories -1 and "" stand for no value, as in TensorFlow.

Source: tf.feature_column.
"""

from __future__ import annotations

from lockstep.estimator.feature_column._categorical import (
    categorical_column_with_hash_bucket as categorical_column_with_hash_bucket,
)
from lockstep.estimator.feature_column._categorical import (
    categorical_column_with_identity as categorical_column_with_identity,
)
from lockstep.estimator.feature_column._categorical import weighted_categorical_column as weighted_categorical_column
from lockstep.estimator.feature_column._columns import make_parse_example_spec as make_parse_example_spec
from lockstep.estimator.feature_column._crossed import crossed_column as crossed_column
from lockstep.estimator.feature_column._dense_features import DenseFeatures as DenseFeatures
from lockstep.estimator.feature_column._dense_features import input_layer as input_layer
from lockstep.estimator.feature_column._embedding import embedding_column as embedding_column
from lockstep.estimator.feature_column._embedding import indicator_column as indicator_column
from lockstep.estimator.feature_column._embedding import shared_embeddings as shared_embeddings
from lockstep.estimator.feature_column._linear_model import linear_model as linear_model
from lockstep.estimator.feature_column._numeric import bucketized_column as bucketized_column
from lockstep.estimator.feature_column._numeric import numeric_column as numeric_column
from lockstep.estimator.feature_column._sequence import (
    sequence_categorical_column_with_hash_bucket as sequence_categorical_column_with_hash_bucket,
)
from lockstep.estimator.feature_column._sequence import (
    sequence_categorical_column_with_identity as sequence_categorical_column_with_identity,
)
from lockstep.estimator.feature_column._sequence import (
    sequence_categorical_column_with_vocabulary_file as sequence_categorical_column_with_vocabulary_file,
)
from lockstep.estimator.feature_column._sequence import (
    sequence_categorical_column_with_vocabulary_list as sequence_categorical_column_with_vocabulary_list,
)
from lockstep.estimator.feature_column._sequence import sequence_numeric_column as sequence_numeric_column
from lockstep.estimator.feature_column._vocabulary import (
    categorical_column_with_vocabulary_file as categorical_column_with_vocabulary_file,
)
from lockstep.estimator.feature_column._vocabulary import (
    categorical_column_with_vocabulary_list as categorical_column_with_vocabulary_list,
)

__all__ = [
    "DenseFeatures",
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
    "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list",
    "sequence_numeric_column",
    "shared_embeddings",
    "weighted_categorical_column",
]
