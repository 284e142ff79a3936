"""Text in a model_fn: strings stay on the host, and the step gets integers computed from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from lockstep._types import ArrayLike, DType


class HostIds(Protocol):
    """The scope of a model_fn, as text needs it."""

    def host_ids(
        self, leaf: str, shape: tuple[int, ...], function: Callable[[np.ndarray], np.ndarray], dtype: DType
    ) -> jax.Array:
        """Returns the integers that `function` computes of a feature's text on the host, ahead of the step."""
        ...


class Text:
    """A symbol for an array of text in a model_fn.

    Attributes:
        shape: The array's shape.
    """

    def __init__(self, scope: HostIds, leaf: str, shape: tuple[int, ...]) -> None:
        self._scope = scope
        self._leaf = leaf
        self.shape = shape

    @property
    def ndim(self) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    def ids(self, function: Callable[[np.ndarray], np.ndarray], dtype: DType = np.int32) -> jax.Array:
        """Returns integers for the text, of the same shape.

        Args:
            function: Maps a numpy object array of bytes to integers of the same shape; it runs on the host, ahead of
                the step.
            dtype: The dtype of the integers.
        """
        return self._scope.host_ids(self._leaf, self.shape, function, dtype)

    def __repr__(self) -> str:
        return f"Text(shape={self.shape})"


def is_text(value: object) -> bool:
    """Returns whether a value is text, in a model_fn or on the host."""
    return isinstance(value, Text) or (isinstance(value, np.ndarray) and value.dtype.kind in "OSU")


@jax.tree_util.register_pytree_node_class
class Words:
    """Words of a vocabulary as integer positions, a PyTree node.

    Attributes:
        ids: Positions in the vocabulary.
        vocabulary: The words, static data of the node.
    """

    def __init__(self, ids: ArrayLike, vocabulary: tuple[bytes, ...]) -> None:
        self.ids = ids
        self.vocabulary = vocabulary

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape of the words."""
        return self.ids.shape

    def on_host(self) -> np.ndarray:
        """Returns the words as an object array of bytes."""
        return np.array(self.vocabulary, object)[np.asarray(self.ids)]

    # TensorFlow's name, for programs that call a head by itself.
    numpy = on_host

    def tree_flatten(self) -> tuple[tuple[Any], tuple[bytes, ...]]:
        """Returns the positions as the child, and the vocabulary as static data."""
        return (self.ids,), self.vocabulary

    @classmethod
    def tree_unflatten(cls, vocabulary: tuple[bytes, ...], children: tuple[Any]) -> Words:
        """Rebuilds the node."""
        return cls(children[0], vocabulary)


def words(ids: ArrayLike, vocabulary: Sequence[bytes | str]) -> Words:
    """Returns text for predictions: the words of `vocabulary` at the positions `ids`."""
    return Words(ids, tuple(w.encode() if isinstance(w, str) else bytes(w) for w in vocabulary))
