"""The features of one call, for columns, and their dtypes: text, integers, floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from lockstep._text import Text
from lockstep._types import ArrayLike, DType, PyTree
from lockstep.errors import ArgumentError

TEXT = np.dtype(object)
# TensorFlow's tf.string has the name "string".
_TEXT_NAMES: tuple[Any, ...] = (object, TEXT, bytes, str, "string", "bytes", "str", "object")


class Features:
    """A dict of features, arrays, `Text` or numpy arrays of text, with a cache of computed columns."""

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
        # An embedding and an indicator of one categorical column, or a cross of it, look it up once.
        if column not in self._computed:
            self._computed[column] = compute()
        return self._computed[column]

    def is_text(self, key: str) -> bool:
        """Returns whether a feature is text."""
        return is_text(self._value(key))

    def numbers(self, key: str) -> jax.Array:
        """Returns a feature as an array, (batch,) as (batch, 1)."""
        value = self._value(key)
        if is_text(value):
            raise ArgumentError(
                f"This column takes numbers. Received: text, for the feature {key!r}. Use a column of text, such as "
                "categorical_column_with_vocabulary_list."
            )
        return _column(key, jnp.asarray(value))

    def integers(self, key: str) -> jax.Array:
        """Returns a feature of integers, (batch,) as (batch, 1)."""
        values = self.numbers(key)
        # Numbers are not truncated: TensorFlow refuses them, too, and a cast would merge categories without a word.
        if not is_integer(values.dtype):
            raise ArgumentError(
                f"A column of integers takes integers. Received for {key!r}: {values.dtype.name}. Cast the feature in "
                "the input_fn, or put real numbers into buckets with bucketized_column."
            )
        return values

    def codes(self, key: str, function: Callable[[np.ndarray], np.ndarray], dtype: DType = np.int32) -> jax.Array:
        """Returns the integers that `function` makes of a feature of text on the host, (batch,) as (batch, 1)."""
        return _column(key, text_codes(self._value(key), function, dtype))

    def _value(self, key: str) -> Any:
        if key not in self._features:
            raise ArgumentError(
                f"Each column needs its feature. Received no {key!r}; there are: "
                f"{', '.join(sorted(map(str, self._features)))}."
            )
        value = self._features[key]
        # A step has static shapes, so sparse and ragged tensors have no place in it.
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
    texts = np.asarray(text, object)
    # Filled by slice: np.array of bytes would make fixed-width text, and drop zeros at the end.
    encoded = np.empty(texts.size, object)
    encoded[:] = [e.encode() if isinstance(e, str) else bytes(e) for e in texts.ravel()]
    return jnp.asarray(np.asarray(function(encoded.reshape(texts.shape)), dtype))


def is_text(value: PyTree) -> bool:
    """Returns whether a value is text: a model_fn's `Text`, an array of numpy, or a str."""
    if isinstance(value, (Text, str, bytes)):
        return True
    # A dtype outside of numpy means an array of JAX or a symbol of Keras, never text; np.asarray would fail on a
    # tracer.
    return (isinstance(value, np.ndarray) or not hasattr(value, "dtype")) and np.asarray(value).dtype.kind in "OSU"


def _column(key: str, values: jax.Array) -> jax.Array:
    # tf.feature_column adds the dimension, too: an input_fn of arrays gives (batch,).
    if values.ndim == 0:
        raise ArgumentError(
            f"A feature has a first dimension, the batch. Received for {key!r}: a scalar. Batch the data."
        )
    return values[:, None] if values.ndim == 1 else values


def to_dtype(dtype: DType, key: str) -> np.dtype[Any]:
    """Converts a dtype, a name or TensorFlow's dtype to numpy's; `object` stands for text."""
    # TensorFlow's dtypes are known by their name alone: it need not be installed.
    name = getattr(dtype, "name", dtype)
    if any(dtype is known or name == known for known in _TEXT_NAMES):
        return TEXT
    try:
        numpy_dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(name)
    except TypeError:
        raise ArgumentError(
            f"dtype must be a type of text or numbers. Received for {key!r}: {dtype!r}. Example: 'string', np.int64."
        ) from None
    return TEXT if numpy_dtype.kind in "US" else numpy_dtype


def is_integer(dtype: DType) -> bool:
    """Returns whether it is an integer dtype; bool is none."""
    return np.dtype(dtype).kind in "iu"


def is_number(dtype: DType) -> bool:
    """Returns whether it is an integer or floating dtype."""
    # numpy's kind of ml_dtypes' bfloat16 is "V".
    return np.dtype(dtype).kind in "iuf" or np.dtype(dtype) == ml_dtypes.bfloat16


def to_categorical_dtype(dtype: DType, key: str) -> np.dtype[Any]:
    """Converts a dtype of a categorical column, see `to_dtype`."""
    numpy_dtype = to_dtype(dtype, key)
    if numpy_dtype == TEXT or is_integer(numpy_dtype):
        return numpy_dtype
    raise ArgumentError(
        f"A categorical column is of text or of integers. Received for {key!r}: {numpy_dtype.name}. Put real numbers "
        "into buckets first, with bucketized_column."
    )


def check_key(key: object) -> str:
    """Checks a feature's name."""
    if not isinstance(key, str):
        raise ArgumentError(f"key must be the name of a feature, a str. Received: {key!r} ({type(key).__name__}).")
    return key


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Returns a dtype's name for messages."""
    return "text" if dtype == TEXT else dtype.name
