"""Text in a model_fn: it stays on the host, and the step sees numbers that stand for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from lockstep._model_fn.scope import ModelScope


class Text:
    """What a model_fn sees of an array of text.

    Attributes:
        shape: Its shape.
    """

    def __init__(self, scope: ModelScope, leaf: str, shape: tuple[int, ...]) -> None:
        self._scope = scope
        self._leaf = leaf
        self.shape = shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def ids(self, function: Callable[[np.ndarray], np.ndarray], dtype: Any = np.int32) -> jax.Array:
        """Returns integers for the text, of the same shape.

        Args:
            function: Maps a numpy object array of bytes to integers of the same shape; it runs on the host, ahead of
                the step.
            dtype: Of the integers.
        """
        return self._scope.host_ids(self._leaf, self.shape, function, dtype)

    def __repr__(self) -> str:
        return f"Text(shape={self.shape})"


def is_text(value: Any) -> bool:
    """Whether `value` is text, in a model_fn or on the host."""
    return isinstance(value, Text) or (isinstance(value, np.ndarray) and value.dtype.kind in "OSU")


@jax.tree_util.register_pytree_node_class
class Words:
    """Numbers that stand for words of a vocabulary.

    Attributes:
        ids: Positions in the vocabulary.
        vocabulary: The words.
    """

    def __init__(self, ids: Any, vocabulary: tuple[bytes, ...]) -> None:
        self.ids = ids
        self.vocabulary = vocabulary

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the words."""
        return self.ids.shape

    def on_host(self) -> np.ndarray:
        """Returns the words as an object array of bytes."""
        return np.array(self.vocabulary, object)[np.asarray(self.ids)]

    def tree_flatten(self) -> tuple[tuple[Any], tuple[bytes, ...]]:
        """The numbers, and the words."""
        return (self.ids,), self.vocabulary

    @classmethod
    def tree_unflatten(cls, vocabulary: tuple[bytes, ...], children: tuple[Any]) -> Words:
        """Puts them together again."""
        return cls(children[0], vocabulary)


def words(ids: Any, vocabulary: Sequence[bytes | str]) -> Words:
    """Returns text for predictions: the words of `vocabulary` at the positions `ids`."""
    return Words(ids, tuple(w.encode() if isinstance(w, str) else bytes(w) for w in vocabulary))
