"""tf.lookup: tables from keys to values, on the host."""

from __future__ import annotations

from pathlib import Path as _Path
from typing import Any as _Any

import numpy as _np

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype as _as_dtype
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import named as _named
from lockstep.compat.tensorflow._ops.dispatch import DEVICE as _DEVICE
from lockstep.compat.tensorflow._ops.dispatch import library_of as _library
from lockstep.compat.tensorflow._ops.dispatch import usable_dtype as _usable
from lockstep.compat.tensorflow._tensor import HostTensor as _HostTensor
from lockstep.compat.tensorflow._tensor import as_host as _as_host
from lockstep.compat.tensorflow._tensor import constant_array as _constant_array
from lockstep.compat.tensorflow._tensor import to_text as _to_text
from lockstep.compat.tensorflow._types import DTypeLike as _DTypeLike
from lockstep.compat.tensorflow._types import PathLike as _PathLike
from lockstep.errors import ArgumentError as _ArgumentError
from lockstep.errors import DataNotFoundError as _DataNotFoundError
from lockstep.errors import UnsupportedError as _UnsupportedError

__all__ = ["KeyValueTensorInitializer", "StaticHashTable", "StaticVocabularyTable", "TextFileInitializer"]
__all__ += ["TextFileIndex"]


class TextFileIndex:
    """Parts of a line that can be a key or a value. Source: tf.lookup.TextFileIndex."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class KeyValueTensorInitializer:
    """Keys and values, as many. Source: tf.lookup.KeyValueTensorInitializer."""

    def __init__(
        self,
        keys: _Tensor,
        values: _Tensor,
        key_dtype: _DTypeLike = None,
        value_dtype: _DTypeLike = None,
        name: str | None = None,
    ) -> None:
        """Takes two lists or tensors, and the types of their elements if they shall be others."""
        self.keys = _to_array(keys, key_dtype)
        self.values = _to_array(values, value_dtype)
        if len(self.keys) != len(self.values):
            raise _ArgumentError(
                f"There must be as many values as keys. Received: {len(self.values)} and {len(self.keys)}."
            )


class TextFileInitializer(KeyValueTensorInitializer):
    """Keys and values of the lines of a file. Source: tf.lookup.TextFileInitializer."""

    def __init__(
        self,
        filename: _PathLike,
        key_dtype: _DTypeLike,
        key_index: int,
        value_dtype: _DTypeLike,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
    ) -> None:
        """Reads a file; an index is a column, or one of `TextFileIndex`. `vocab_size` takes the first lines only.

        Raises:
            DataNotFoundError: If there is no such file.
        """
        path = _Path(_to_text(filename).item().decode())
        if not path.exists():
            raise _DataNotFoundError(f"The file must exist. Received: {path}.")
        # Bytes: text is bytes here, and needs no encoding.
        lines = path.read_bytes().splitlines()[:vocab_size]
        keys = _parts(lines, key_index, delimiter, key_dtype)
        super().__init__(keys, _parts(lines, value_index, delimiter, value_dtype), key_dtype, value_dtype)


def _parts(lines: list[bytes], index: int, delimiter: str, dtype: _DTypeLike) -> _Any:
    if index == TextFileIndex.LINE_NUMBER:
        return _np.arange(len(lines))
    texts = lines if index == TextFileIndex.WHOLE_LINE else [line.split(delimiter.encode())[index] for line in lines]
    return texts if _as_dtype(dtype).dtype == object else [_as_dtype(dtype).as_numpy_dtype(float(f)) for f in texts]


def _to_array(values: _Tensor, dtype: _DTypeLike) -> _Any:
    array = _constant_array(_np.asarray(values) if isinstance(values, _np.ndarray) else values)
    # 64-bit keys stay: they are compared on the host.
    wanted = None if dtype is None else _as_dtype(dtype).dtype
    return array.ravel() if wanted is None or wanted == array.dtype else array.ravel().astype(wanted)


class StaticHashTable:
    """Finds values of keys: on the host, such as in data sets.

    In a model_fn, text among the features can be looked up, where values are numbers; and numbers from 0 up, where
    values are text, for predictions.

    Source: tf.lookup.StaticHashTable.
    """

    def __init__(self, initializer: KeyValueTensorInitializer, default_value: _Tensor, name: str | None = None) -> None:
        """Makes a table; `default_value` is what a key has that is not in it."""
        self._table = dict(zip(initializer.keys.tolist(), initializer.values.tolist(), strict=True))
        self._dtype = initializer.values.dtype
        # Text is compared as bytes.
        self._default = _to_text(default_value).item() if self._dtype.kind == "O" else default_value

    def lookup(self, keys: _Tensor, name: str | None = None) -> _Any:
        """Returns the values of keys, in a tensor of the same shape."""
        # The host looks text up before the step, which gets numbers.
        if _named.is_text_of_model(keys):
            return self._look_up_text(keys)
        if _named.model_fn_scope() is not None and self._dtype.kind == "O" and _library(keys) is _DEVICE:
            return self._to_words(keys)
        if _library(keys) is not _np:
            kind = "an array of JAX" if _library(keys) is _DEVICE else "a symbolic tensor of Keras"
            raise _UnsupportedError(
                f"Tables are on the host. Received {kind}. Use tf.keras.layers.StringLookup or IntegerLookup."
            )
        array = _constant_array(keys)
        # A dict, not numpy's searchsorted: keys may be text.
        values = _np.empty(array.size, self._dtype)
        for number, key in enumerate(array.ravel().tolist()):
            values[number] = self._value(key)
        return _as_host(values.reshape(_np.shape(array)))

    def _value(self, key: _Any) -> _Any:
        return self._table.get(key, self._default)

    def _look_up_text(self, keys: _Tensor) -> _Any:
        """Returns values by the positions of keys, which the host finds."""
        import jax.numpy as jnp

        from lockstep.saved_model import VocabularyIds

        if self._dtype.kind == "O":
            raise _UnsupportedError(
                "In a model_fn text is looked up for numbers. Received a table whose values are text."
            )
        positions = keys.ids(VocabularyIds(list(self._table), len(self._table)))
        values = _np.array([*self._table.values(), self._default], self._dtype)
        return jnp.asarray(values.astype(_usable(_DEVICE, self._dtype)))[positions]

    def _to_words(self, keys: _Tensor) -> _Any:
        """Returns text of predictions for numbers."""
        import jax.numpy as jnp

        from lockstep._text import words

        count = len(self._table)
        if not all(isinstance(key, int) and 0 <= key < count for key in self._table):
            raise _UnsupportedError(
                "In a model_fn the keys of a table of text must be the numbers from 0 up. Received: "
                f"{list(self._table)[:5]}. Look the text up after predict()."
            )
        # One number past the end stands for the default.
        inside = (keys >= 0) & (keys < count)
        return words(jnp.where(inside, keys, count), [self._value(number) for number in range(count + 1)])

    def __getitem__(self, keys: _Tensor) -> _Any:
        return self.lookup(keys)

    def size(self, name: str | None = None) -> _HostTensor:
        """Returns the number of keys."""
        return _as_host(_np.int64(len(self._table)))


class StaticVocabularyTable(StaticHashTable):
    """Finds numbers of text; unknown text gets one of further numbers, by its hash, which is not TensorFlow's.

    Source: tf.lookup.StaticVocabularyTable.
    """

    def __init__(
        self,
        initializer: KeyValueTensorInitializer | None,
        num_oov_buckets: int,
        lookup_key_dtype: _Any = None,
        name: str | None = None,
    ) -> None:
        """Makes a table of an initializer, with so many numbers for unknown text."""
        # Without an initializer all text goes to the further numbers.
        super().__init__(initializer or KeyValueTensorInitializer([], [], "string", "int64"), -1)
        self._buckets = num_oov_buckets

    def _look_up_text(self, keys: _Tensor) -> _Any:
        if not self._buckets:
            return super()._look_up_text(keys)
        return keys.ids(lambda words: _np.asarray(self.lookup(words)), _usable(_DEVICE, _np.int64))

    def _value(self, key: _Any) -> _Any:
        from lockstep.compat.tensorflow._ops.strings import to_hash_bucket_fast

        if key in self._table:
            return self._table[key]
        # Numbers for unknown text follow those of the table.
        return len(self._table) + int(to_hash_bucket_fast(key if isinstance(key, bytes) else str(key), self._buckets))


__getattr__ = _getter(__name__)
