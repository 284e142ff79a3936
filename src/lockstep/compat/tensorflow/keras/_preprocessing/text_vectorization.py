"""`TextVectorization`: numbers of the words of texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._preprocessing.encode import check_mode, encoded_shape
from lockstep.compat.tensorflow.keras._preprocessing.host_layer import HostLayer, batches_of, to_values
from lockstep.compat.tensorflow.keras._preprocessing.lookup_layers import StringLookup
from lockstep.errors import ArgumentError, UnsupportedError

# The characters that TensorFlow removes: ASCII's punctuation.
_PUNCTUATION = re.compile(rb'[!"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\']')
_STANDARDIZE = ("lower_and_strip_punctuation", "lower", "strip_punctuation")
_SPLIT = ("whitespace", "character")

Standardize = Callable[[Any], Any] | str | None
Split = Callable[[Any], Any] | str | None


@keras.saving.register_keras_serializable(package="lockstep")
class TextVectorization(HostLayer):
    """Numbers of the words of texts, by a vocabulary that is given or learnt by `adapt`.

    Args:
        max_tokens: The size of the vocabulary, special tokens included. Default: no limit.
        standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation", None, or a function of texts.
        split: "whitespace", "character", None, or a function from texts to their words.
        ngrams: Up to how many words are joined to one token; or which numbers of words, as a tuple.
        output_mode: "int", "multi_hot", "count" or "tf_idf".
        output_sequence_length: How many numbers each text gives, in mode "int". Default: those of the longest text.
        pad_to_max_tokens: Whether encodings have `max_tokens` columns.
        vocabulary: Words in order, or the path of a file.
        idf_weights: A weight for each word, in mode "tf_idf".
        sparse: Must be false.
        ragged: Must be false.
        encoding: Must be "utf-8".
        **kwargs: Those of every layer.

    Shapes: `(batch,)` or `(batch, 1)` texts in; `(batch, words)` or `(batch, max_tokens)` out. Dtypes: int64, or floatx
    for encodings. In mode "int" 0 fills up, and 1 is a word that is not in the vocabulary.

    Raises:
        ArgumentError: If arguments do not fit together.
        UnsupportedError: For sparse and ragged results.

    Source: `tf.keras.layers.TextVectorization` of TensorFlow 2.15.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: Standardize = "lower_and_strip_punctuation",
        split: Split = "whitespace",
        ngrams: int | Sequence[int] | None = None,
        output_mode: str = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        encoding: str = "utf-8",
        **kwargs: Argument,
    ) -> None:
        kwargs.pop("vocabulary_size", None)
        dtype = kwargs.pop("dtype", None)
        super().__init__(**kwargs)
        mode = {"binary": "multi_hot", "tf-idf": "tf_idf"}.get(output_mode, output_mode)
        check_mode("TextVectorization", mode, ("int", "multi_hot", "count", "tf_idf"))
        _check_choice("standardize", standardize, _STANDARDIZE)
        _check_choice("split", split, _SPLIT)
        if ragged:
            raise UnsupportedError("TextVectorization gives padded numbers: ragged=True was given. Leave it out.")
        if output_sequence_length is not None and (mode != "int" or output_sequence_length < 1):
            raise ArgumentError(
                "output_sequence_length is a positive number, and goes with output_mode='int'. Received: "
                f"{output_sequence_length!r} and {output_mode!r}."
            )
        self.max_tokens, self.standardize, self.split = max_tokens, standardize, split
        widths = tuple(ngrams) if isinstance(ngrams, (tuple, list)) else ngrams
        self.ngrams = widths
        self._widths = tuple(range(1, widths + 1)) if isinstance(widths, int) else widths
        self.output_mode, self.output_sequence_length = mode, output_sequence_length
        self.pad_to_max_tokens, self.encoding, self.ragged, self.sparse = pad_to_max_tokens, encoding, ragged, sparse
        self._lookup = StringLookup(
            max_tokens=max_tokens,
            mask_token="",
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            encoding=encoding,
            output_mode=mode,
            sparse=sparse,
            pad_to_max_tokens=pad_to_max_tokens,
            dtype=dtype,
        )

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """Returns the vocabulary, by default with "" (in mode "int") and "[UNK]" at the beginning."""
        return self._lookup.get_vocabulary(include_special_tokens)

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Sets the vocabulary; arguments and errors as of `StringLookup.set_vocabulary`."""
        self._lookup.set_vocabulary(vocabulary, idf_weights)

    def vocabulary_size(self) -> int:
        """Returns the number of words, with the special tokens."""
        return self._lookup.vocabulary_size()

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learns the vocabulary of texts; arguments as of `StringLookup.adapt`."""
        self.reset_state()
        for batch in batches_of(data, steps, batch_size):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Counts the words of a batch."""
        self._lookup.count_rows(self._words_of(self._texts_of(to_values(data))))

    def finalize_state(self) -> None:
        """Makes the vocabulary of what was counted."""
        self._lookup.finalize_state()

    def reset_state(self) -> None:
        """Forgets what `update_state` has counted."""
        self._lookup.reset_state()

    def compute(self, values: np.ndarray) -> np.ndarray:
        """Returns the numbers of the words of texts, or their encoding."""
        if values.dtype != object:
            raise ArgumentError(f"TextVectorization takes texts. Received values of {values.dtype}.")
        if self.split is None and self._widths is None:
            # Each text is one word, and dimensions stay as they are.
            numbers = self._lookup.numbers_of(self._standardize(values))
            return numbers if self.output_mode == "int" else self._lookup.encode_numbers(numbers)
        rows = self._words_of(self._texts_of(values))
        length = max(map(len, rows), default=0)
        if self.output_mode == "int":
            length = self.output_sequence_length or length
        # What fills up is the mask token: 0, or left out of an encoding.
        padded = np.full((len(rows), length), b"", object)
        for row, words in zip(padded, rows, strict=True):
            words = words[:length]
            row[: len(words)] = words
        numbers = self._lookup.numbers_of(padded)
        numbers = numbers if values.ndim else numbers[0]
        return numbers if self.output_mode == "int" else self._lookup.encode_numbers(numbers)

    def _texts_of(self, values: np.ndarray) -> np.ndarray:
        """Returns texts as an array of one dimension, or of more where each is a word already."""
        if self.split is None or values.ndim < 2:
            return values
        if values.shape[-1] != 1 or values.ndim > 2:
            raise ArgumentError(
                "With split= TextVectorization takes texts of shape (batch,) or (batch, 1). Received shape "
                f"{values.shape}."
            )
        return values[:, 0]

    def _standardize(self, texts: np.ndarray) -> np.ndarray:
        if self.standardize is None:
            return texts
        if callable(self.standardize):
            return to_values(self.standardize(as_host(texts)))
        lowers, strips = "lower" in self.standardize, "strip" in self.standardize
        flat = texts.ravel().tolist()
        # bytes.lower changes ASCII's letters alone, as TensorFlow's tf.strings.lower.
        flat = [t.lower() for t in flat] if lowers else flat
        flat = [_PUNCTUATION.sub(b"", t) for t in flat] if strips else flat
        result = np.empty(len(flat), object)
        result[:] = flat
        return result.reshape(texts.shape)

    def _words_of(self, texts: np.ndarray) -> list[list[bytes]]:
        """Returns the words of each text, joined to n-grams if those are asked for."""
        texts = np.atleast_1d(self._standardize(texts))
        if self.split is None:
            rows = texts.reshape(len(texts), -1).tolist()
        elif self.split == "whitespace":
            rows = [text.split() for text in texts.tolist()]
        elif self.split == "character":
            rows = [[c.encode() for c in text.decode("utf-8", "replace")] for text in texts.tolist()]
        else:
            split: Any = self.split
            # One text at a time: texts have different numbers of words.
            rows = [to_values(split(as_host(texts[i : i + 1]))).ravel().tolist() for i in range(len(texts))]
        return rows if self._widths is None else [self._join(row) for row in rows]

    def _join(self, words: list[bytes]) -> list[bytes]:
        assert self._widths is not None
        return [b" ".join(words[i : i + n]) for n in self._widths for i in range(len(words) - n + 1)]

    def symbolic_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the result."""
        if self.split is not None and len(shape) > 1:
            shape = shape[:1]
        if self.split is None and self._widths is None:
            return encoded_shape(shape, self.output_mode, None if self.output_mode == "int" else self._lookup.depth())
        last = self.output_sequence_length if self.output_mode == "int" else self._lookup.depth()
        return (*shape[:1], last)

    def result_dtype(self) -> str:
        """Returns the dtype of the result."""
        return self._lookup.result_dtype()

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, with the vocabulary as it is."""
        known = self._lookup.get_config()
        config = {
            **super().get_config(),
            "max_tokens": self.max_tokens,
            "standardize": _serialize(self.standardize),
            "split": _serialize(self.split),
            "ngrams": self.ngrams,
            "output_mode": self.output_mode,
            "output_sequence_length": self.output_sequence_length,
            "pad_to_max_tokens": self.pad_to_max_tokens,
            "vocabulary": known["vocabulary"],
            "idf_weights": known["idf_weights"],
            "sparse": self.sparse,
            "ragged": self.ragged,
            "encoding": self.encoding,
        }
        config["dtype"] = known["dtype"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Returns a layer of a configuration; functions in it must be registered, or among the custom objects."""
        for name in ("standardize", "split"):
            if isinstance(config.get(name), dict):
                config = {**config, name: keras.saving.deserialize_keras_object(config[name])}
        return cls(**config)


def _serialize(value: Any) -> Any:
    return keras.saving.serialize_keras_object(value) if callable(value) else value


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value is not None and not callable(value) and value not in allowed:
        raise ArgumentError(
            f"{name} of TextVectorization is one of {', '.join(allowed)}, None, or a function. Received: {value!r}."
        )
