"""The features of one call, for columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._text import Text
from lockstep._types import ArrayLike, DType, PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column import _kinds


class Features:
    """A dict of features, with a cache of computed columns.

    Args:
        features: Arrays, `Text` or numpy arrays of text, by name.

    Raises:
        ArgumentError: If it is no dict.
    """

    def __init__(self, features: PyTree) -> None:
        if not isinstance(features, Mapping):
            raise ArgumentError(
                f"Feature columns take features as a dict, by name. Received: {type(features).__name__}. Return "
                "({'name': values, ...}, labels) from the input_fn."
            )
        self._features: Mapping[str, Any] = features
        self._computed: dict[Hashable, Any] = {}

    def cached(self, column: Hashable, compute: Callable[[], Any]) -> Any:
        """Returns a column's cached result; computes it on first use."""
        if column not in self._computed:
            self._computed[column] = compute()
        return self._computed[column]

    def is_text(self, key: str) -> bool:
        """Returns whether a feature is text."""
        return _is_text(self._value(key))

    def numbers(self, key: str) -> jax.Array:
        """Returns a feature as an array, (batch,) as (batch, 1).

        Raises:
            ArgumentError: If there is no such feature, or it is text or a scalar.
        """
        value = self._value(key)
        if _is_text(value):
            raise ArgumentError(
                f"This column takes numbers. Received: text, for the feature {key!r}. Use a column of text, such as "
                "categorical_column_with_vocabulary_list."
            )
        return _column(key, jnp.asarray(value))

    def codes(self, key: str, function: Callable[[np.ndarray], np.ndarray], dtype: DType = np.int32) -> jax.Array:
        """Returns integers for a feature of text, (batch,) as (batch, 1).

        Args:
            key: The feature's name.
            function: Maps an object array of bytes to integers of the same shape, on the host.
            dtype: The dtype of the integers.
        """
        return _column(key, text_codes(self._value(key), function, dtype))

    def _value(self, key: str) -> Any:
        if key not in self._features:
            raise ArgumentError(
                f"Each column needs its feature. Received no {key!r}; there are: "
                f"{', '.join(sorted(map(str, self._features)))}."
            )
        value = self._features[key]
        if hasattr(value, "to_dense") or isinstance(value, Mapping):
            raise ArgumentError(
                f"Columns take dense features. Received for {key!r}: {type(value).__name__}. In the input_fn make it "
                "dense: value.to_dense(), for integers value.to_dense(-1); '' and -1 stand for no value."
            )
        return value


def text_codes(text: ArrayLike, function: Callable[[np.ndarray], np.ndarray], dtype: DType = np.int32) -> jax.Array:
    """Returns integers for text, of the same shape: `Text` in a model_fn, a numpy array of text elsewhere."""
    if isinstance(text, Text):
        return text.ids(function, dtype)
    return jnp.asarray(np.asarray(function(_as_bytes(text)), dtype))


def is_text(value: PyTree) -> bool:
    """Returns whether a value is text: a model_fn's `Text`, an array of numpy, or a str."""
    return _is_text(value)


def _is_text(value: PyTree) -> bool:
    if isinstance(value, (Text, str, bytes)):
        return True
    # A dtype outside of numpy means an array of JAX or a symbol of Keras, never text; np.asarray would fail on a
    # tracer.
    return (isinstance(value, np.ndarray) or not hasattr(value, "dtype")) and np.asarray(value).dtype.kind in "OSU"


def _as_bytes(text: ArrayLike) -> np.ndarray:
    texts = np.asarray(text, object)
    encoded = np.empty(texts.size, object)
    encoded[:] = [e.encode() if isinstance(e, str) else bytes(e) for e in texts.ravel()]
    return encoded.reshape(texts.shape)


def _column(key: str, values: jax.Array) -> jax.Array:
    if values.ndim == 0:
        raise ArgumentError(
            f"A feature has a first dimension, the batch. Received for {key!r}: a scalar. Batch the data."
        )
    return values[:, None] if values.ndim == 1 else values


def integer_feature(features: Features, key: str) -> jax.Array:
    """Returns a feature of integers.

    Raises:
        ArgumentError: If it is text or real numbers.
    """
    values = features.numbers(key)
    if not _kinds.is_integer(values.dtype):
        raise ArgumentError(
            f"A column of integers takes integers. Received for {key!r}: {values.dtype.name}. Cast the feature in the "
            "input_fn, or put real numbers into buckets with bucketized_column."
        )
    return values
