"""Base of `StringLookup` and `IntegerLookup`: numbers of categories by a vocabulary."""

from __future__ import annotations

import abc
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._preprocessing.encode import check_mode, encode, encoded_shape
from lockstep.compat.tensorflow.keras._preprocessing.host_layer import HostLayer, batches_of, to_values
from lockstep.errors import ArgumentError, InputError, UnsupportedError


@dataclass
class _Vocabulary:
    """A vocabulary without its special tokens.

    Attributes:
        tokens: In order.
        table: The number of each token.
        weights: By number, for mode "tf_idf".
    """

    tokens: list[Any] = field(default_factory=list[Any])
    table: dict[Any, int] = field(default_factory=dict[Any, int])
    weights: np.ndarray | None = None


@dataclass
class _Counts:
    """Holds what `adapt` counts: tokens, examples that hold them, and examples."""

    tokens: Counter[Any] = field(default_factory=Counter[Any])
    documents: Counter[Any] = field(default_factory=Counter[Any])
    examples: int = 0


class IndexLookup(HostLayer):
    """Numbers of categories by a vocabulary, which is given or learnt by `adapt`; or the reverse.

    The table begins with the mask token (in mode "int"), then `num_oov_indices` for what is not in it.
    """

    _is_text = True

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: Any = None,
        oov_token: Any = None,
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        **kwargs: Argument,
    ) -> None:
        kwargs.pop("vocabulary_size", None)
        kwargs.pop("has_input_vocabulary", None)
        dtype = kwargs.pop("dtype", None)
        super().__init__(**kwargs)
        name = type(self).__name__
        mode = {"binary": "multi_hot", "tf-idf": "tf_idf"}.get(output_mode, output_mode)
        check_mode(name, mode)
        if max_tokens is not None and max_tokens <= 1:
            raise ArgumentError(f"max_tokens of {name} is at least 2, or None for no limit. Received: {max_tokens!r}.")
        if num_oov_indices < 0:
            raise ArgumentError(f"num_oov_indices of {name} is at least 0. Received: {num_oov_indices!r}.")
        if invert and mode != "int":
            raise ArgumentError(f"invert=True of {name} goes with output_mode='int'. Received: {output_mode!r}.")
        if invert and num_oov_indices != 1:
            raise ArgumentError(f"invert=True of {name} goes with one index of its own for what is not in it.")
        if sparse:
            raise UnsupportedError(f"{name} gives dense tensors: sparse=True was given. Leave it out.")
        if idf_weights is not None and mode != "tf_idf":
            raise ArgumentError(f"idf_weights of {name} go with output_mode='tf_idf'. Received: {output_mode!r}.")
        self.max_tokens, self.num_oov_indices = max_tokens, num_oov_indices
        self.mask_token, self.oov_token = mask_token, oov_token
        self.invert, self.output_mode, self.pad_to_max_tokens = invert, mode, pad_to_max_tokens
        self.sparse = False
        self._result_dtype = None if dtype is None or mode == "int" else keras.backend.standardize_dtype(dtype)
        # In objects of their own: Keras would wrap dicts and lists.
        self._known = _Vocabulary()
        self.reset_state()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)

    # Text is bytes inside, and text for the user.
    def _encode(self, token: Any) -> Any:
        return int(token)

    def _decode(self, token: Any) -> Any:
        return token

    def _oov_start(self) -> int:
        return 1 if self.mask_token is not None and self.output_mode == "int" else 0

    def _token_start(self) -> int:
        return self._oov_start() + self.num_oov_indices

    def _special(self) -> list[Any]:
        return [self.mask_token] * self._oov_start() + [self.oov_token] * self.num_oov_indices

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Sets the vocabulary, with or without the special tokens at its beginning.

        Args:
            vocabulary: Tokens in order, or the path of a file with one on each line.
            idf_weights: A weight for each token, in mode "tf_idf".

        Raises:
            ArgumentError: If tokens repeat, special tokens are among them, or there are more than `max_tokens`.
            InputError: If the file is not there.
        """
        name = type(self).__name__
        tokens = [self._encode(token) for token in self._read(vocabulary)]
        special = [self._encode(token) for token in self._special()]
        given = np.array([]) if idf_weights is None else np.asarray(idf_weights, "float32")
        if tokens[: len(special)] == special:
            tokens, given = tokens[len(special) :], given[len(special) :] if len(given) > len(tokens) - 1 else given
        if self.output_mode == "tf_idf" and len(given) != len(tokens):
            raise ArgumentError(
                f"With output_mode='tf_idf' each token of {name} has a weight. Received {len(tokens)} tokens and "
                f"{len(given)} weights."
            )
        repeated = [token for token, count in Counter(tokens).items() if count > 1]
        if repeated:
            raise ArgumentError(f"Each token of a vocabulary is there once. Received several times: {repeated[:10]}.")
        for which, token in (("mask", self.mask_token), ("OOV", self.oov_token)):
            if token is not None and self._encode(token) in tokens:
                raise ArgumentError(
                    f"A vocabulary of {name} may begin with its special tokens {self._special()}. Received the "
                    f"{which} token {token!r} at another place."
                )
        if self.max_tokens is not None and len(tokens) + len(special) > self.max_tokens:
            raise ArgumentError(
                f"A vocabulary has at most max_tokens={self.max_tokens}, special ones included. Received: "
                f"{len(tokens) + len(special)}."
            )
        self._set(tokens, given if self.output_mode == "tf_idf" else None)

    def _read(self, vocabulary: Any) -> Any:
        if isinstance(vocabulary, (str, os.PathLike)):
            path = Path(os.fspath(vocabulary))
            if not path.exists():
                raise InputError(f"The vocabulary of {type(self).__name__} is a file: {path} is not there.")
            lines = path.read_text(encoding="utf-8").split("\n")
            return lines[:-1] if lines and not lines[-1] else lines
        return to_values(vocabulary).ravel().tolist() if not isinstance(vocabulary, list) else vocabulary

    def _set(self, tokens: list[Any], weights: np.ndarray | None) -> None:
        if not tokens and self.output_mode == "tf_idf":
            weights = np.zeros(0, "float32")
        start = self._token_start()
        if weights is not None:
            average = float(np.mean(weights)) if len(weights) else 0.0
            # What is not in the vocabulary weighs what tokens weigh on average.
            weights = np.concatenate([np.full(start, average, "float32"), weights])
            depth = self._depth() or len(weights)
            weights = np.concatenate([weights, np.zeros(depth - len(weights), "float32")])
        self._known = _Vocabulary(tokens, {token: start + i for i, token in enumerate(tokens)}, weights)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Returns the vocabulary, by default with the special tokens."""
        tokens = [self._decode(token) for token in self._known.tokens]
        return (self._special() if include_special_tokens else []) + tokens

    def vocabulary_size(self) -> int:
        """Returns the number of tokens, with the special ones."""
        return len(self._known.tokens) + self._token_start()

    def reset_state(self) -> None:
        """Forgets what `update_state` has counted."""
        self._counted = _Counts()

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learns the vocabulary: tokens by their number, the most frequent first.

        Args:
            data: A dataset of batches, or an array or list.
            batch_size: Of arrays; it changes no result but with `steps`.
            steps: How many batches are read. Default: all.
        """
        self.reset_state()
        for batch in batches_of(data, steps, batch_size):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Counts the tokens of a batch."""
        values = to_values(data)
        # A batch of one dimension counts as one example, as in Keras 2.
        rows = values.reshape(len(values), -1) if values.ndim > 1 else values.reshape(1, -1)
        self.count_rows([self._tokens_of(row) for row in rows])

    def count_rows(self, rows: list[list[Any]]) -> None:
        """Counts the tokens of examples."""
        for row in rows:
            self._counted.tokens.update(row)
            if self.output_mode == "tf_idf":
                self._counted.documents.update(set(row))
                self._counted.examples += 1

    def _tokens_of(self, values: np.ndarray) -> list[Any]:
        return [self._encode(value) for value in values.ravel().tolist()]

    def finalize_state(self) -> None:
        """Makes the vocabulary of what was counted."""
        if not self._counted.tokens:
            return
        special = {self._encode(token) for token in (self.mask_token, self.oov_token) if token is not None}
        # Of equally frequent tokens the greater one comes first.
        ranked = sorted(((c, t) for t, c in self._counted.tokens.items() if t not in special), reverse=True)
        limit = None if self.max_tokens is None else self.max_tokens - self._token_start()
        tokens = [token for _, token in ranked[:limit]]
        weights = None
        if self.output_mode == "tf_idf":
            documents = np.array([self._counted.documents[token] for token in tokens], "float32")
            weights = np.log(1 + self._counted.examples / (1 + documents)).astype("float32")
        self._set(tokens, weights)
        self.reset_state()

    def _depth(self) -> int | None:
        return self.max_tokens if self.pad_to_max_tokens and self.max_tokens else None

    def depth(self) -> int:
        """Returns the number of columns of encodings."""
        return self._depth() or self.vocabulary_size()

    def compute(self, values: np.ndarray) -> np.ndarray:
        """Returns numbers, their encoding, or with `invert` tokens."""
        if self.invert:
            return self._look_up_tokens(values)
        numbers = self.numbers_of(values)
        return self.encode_numbers(numbers)

    def encode_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """Returns numbers as `output_mode` says."""
        return encode(numbers, self.output_mode, self.depth(), self.result_dtype(), self._known.weights)

    def numbers_of(self, values: np.ndarray) -> np.ndarray:
        """Returns the number of each token."""
        tokens = self._tokens_of(values)
        mask = None if self.mask_token is None else self._encode(self.mask_token)
        # A masked token is 0, or left out of an encoding.
        masked = 0 if self._oov_start() else -1
        get, oov = self._known.table.get, self._oov_start()
        if self.num_oov_indices == 1:
            found = [masked if token == mask else get(token, oov) for token in tokens]
        else:
            found = [masked if token == mask else get(token, -2) for token in tokens]
        result = np.array(found, "int64").reshape(values.shape)
        missing = result == -2
        if missing.any():
            if not self.num_oov_indices:
                unknown = [self._decode(t) for t, n in zip(tokens, found, strict=True) if n == -2]
                raise ArgumentError(
                    f"With num_oov_indices=0 all tokens must be in the vocabulary of {type(self).__name__}. Received "
                    f"others: {unknown[:10]}. Set num_oov_indices=1."
                )
            result[missing] = oov + self._bucket_of(values[missing])
        return result

    @abc.abstractmethod
    def _bucket_of(self, values: np.ndarray) -> np.ndarray:
        """Returns the bucket of each value that is not in the vocabulary."""

    def _look_up_tokens(self, values: np.ndarray) -> np.ndarray:
        if values.dtype == object:
            raise ArgumentError(f"With invert=True {type(self).__name__} takes numbers. Received text.")
        table = [self._encode(token) for token in self.get_vocabulary()]
        oov = self._encode(self.oov_token)
        found = [table[n] if 0 <= n < len(table) else oov for n in values.ravel().tolist()]
        return np.array(found, object if self._is_text else "int64").reshape(values.shape)

    def symbolic_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the result."""
        depth = None if self.output_mode == "int" else self.depth()
        return encoded_shape(shape, self.output_mode, depth)

    def result_dtype(self) -> str:
        """Returns the dtype of the result."""
        if self.invert:
            return "string" if self._is_text else "int64"
        return "int64" if self.output_mode == "int" else self._result_dtype or keras.config.floatx()

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, with the vocabulary as it is."""
        weights = None
        if self._known.weights is not None:
            weights = self._known.weights[self._token_start() :][: len(self._known.tokens)].tolist()
        config = {
            **super().get_config(),
            "max_tokens": self.max_tokens,
            "num_oov_indices": self.num_oov_indices,
            "mask_token": self.mask_token,
            "oov_token": self.oov_token,
            "vocabulary": self.get_vocabulary(include_special_tokens=False) or None,
            "idf_weights": weights,
            "invert": self.invert,
            "output_mode": self.output_mode,
            "sparse": self.sparse,
            "pad_to_max_tokens": self.pad_to_max_tokens,
        }
        config["dtype"] = self._result_dtype
        return config
