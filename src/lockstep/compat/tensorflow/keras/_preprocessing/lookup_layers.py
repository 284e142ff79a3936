"""StringLookup and IntegerLookup: the layers that look text and integers up in a vocabulary."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._preprocessing.index_lookup import IndexLookup
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator.internal import fingerprints


@keras.saving.register_keras_serializable(package="lockstep")
class StringLookup(IndexLookup):
    """Numbers of texts by a vocabulary.

    Args:
        max_tokens: The size of the vocabulary, special tokens included. Default: no limit.
        num_oov_indices: How many numbers texts have that are not in the vocabulary; of several, by their hash.
        mask_token: The text whose number is 0, in mode "int". Default: none.
        oov_token: What `get_vocabulary` and `invert` show for texts that are not in it.
        vocabulary: Texts in order, or the path of a file. Default: learnt by `adapt`.
        idf_weights: A weight for each text, in mode "tf_idf".
        encoding: Must be "utf-8".
        invert: Whether numbers are taken, and texts given.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
        sparse: Must be false.
        pad_to_max_tokens: Whether encodings have `max_tokens` columns.
        **kwargs: Those of every layer.

    Shapes: any in; the same out in mode "int". Dtypes: text in, int64 or floatx out.

    Raises:
        ArgumentError: If arguments do not fit together.

    Source: `tf.keras.layers.StringLookup` of TensorFlow 2.15.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: str | None = None,
        oov_token: str = "[UNK]",
        vocabulary: Any = None,
        idf_weights: Any = None,
        encoding: str = "utf-8",
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        **kwargs: Argument,
    ) -> None:
        if str(encoding).lower() not in ("utf-8", "utf8"):
            raise UnsupportedError(f"Text is encoded as utf-8: encoding={encoding!r} was given. Leave it out.")
        super().__init__(
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            oov_token=oov_token,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            invert=invert,
            output_mode=output_mode,
            sparse=sparse,
            pad_to_max_tokens=pad_to_max_tokens,
            **kwargs,
        )

    def _encode(self, token: Any) -> Any:
        return token if isinstance(token, bytes) else str(token).encode()

    def _decode(self, token: Any) -> Any:
        return token.decode("utf-8", "ignore")

    def _bucket_of(self, values: np.ndarray) -> np.ndarray:
        texts = np.array([self._encode(v) for v in values.ravel().tolist()], object)
        return (fingerprints(texts) % np.uint64(self.num_oov_indices)).astype("int64")


@keras.saving.register_keras_serializable(package="lockstep")
class IntegerLookup(IndexLookup):
    """Numbers of integers by a vocabulary.

    Args:
        max_tokens: The size of the vocabulary, special tokens included. Default: no limit.
        num_oov_indices: How many numbers integers have that are not in the vocabulary; of several, by the remainder.
        mask_token: The integer whose number is 0, in mode "int". Default: none.
        oov_token: What `get_vocabulary` and `invert` show for integers that are not in it.
        vocabulary: Integers in order, or the path of a file. Default: learnt by `adapt`.
        vocabulary_dtype: "int64" or "int32".
        idf_weights: A weight for each integer, in mode "tf_idf".
        invert: Whether numbers are taken, and integers of the vocabulary given.
        output_mode: "int", "one_hot", "multi_hot", "count" or "tf_idf".
        sparse: Must be false.
        pad_to_max_tokens: Whether encodings have `max_tokens` columns.
        **kwargs: Those of every layer.

    Shapes: any in; the same out in mode "int". Dtypes: integers in, int64 or floatx out.

    Raises:
        ArgumentError: If arguments do not fit together.

    Source: `tf.keras.layers.IntegerLookup` of TensorFlow 2.15.
    """

    _is_text = False

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: int | None = None,
        oov_token: int = -1,
        vocabulary: Any = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        **kwargs: Argument,
    ) -> None:
        kind = keras.backend.standardize_dtype(vocabulary_dtype)
        if kind not in ("int64", "int32"):
            raise ArgumentError(f"vocabulary_dtype of IntegerLookup is int64 or int32. Received: {vocabulary_dtype!r}.")
        self._vocabulary_dtype = kind
        super().__init__(
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            oov_token=oov_token,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            invert=invert,
            output_mode=output_mode,
            sparse=sparse,
            pad_to_max_tokens=pad_to_max_tokens,
            **kwargs,
        )

    def _bucket_of(self, values: np.ndarray) -> np.ndarray:
        return np.mod(values.astype("int64"), self.num_oov_indices)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, with the vocabulary as it is."""
        return {**super().get_config(), "vocabulary_dtype": self._vocabulary_dtype}
