"""Sets of labels and of predicted classes, one of each per example."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator.metrics._shapes import to_array
from lockstep.estimator.metrics._streaming import widen


class ClassSets:
    """Labels and predicted classes of each example, compared as sets: duplicates count once.

    Args:
        labels: Integers of shape [..., labels].
        chosen: Integers of shape [..., k].
        class_id: Count this class only; `None` for all.
    """

    def __init__(self, labels: jax.Array, chosen: jax.Array, class_id: int | None = None) -> None:
        self._same = labels[..., :, None] == chosen[..., None, :]
        self._labels = _first_occurrences(labels, class_id)
        self._chosen = _first_occurrences(chosen, class_id)

    def hits(self) -> jax.Array:
        """Returns whether each predicted class is a label, of shape [..., k]."""
        return jnp.any(self._same, axis=-2)

    def true_positives(self) -> jax.Array:
        """Counts predicted labels, of shape [...]."""
        return widen(jnp.sum(self._labels & jnp.any(self._same, axis=-1), axis=-1))

    def false_negatives(self) -> jax.Array:
        """Counts labels that were not predicted, of shape [...]."""
        return widen(jnp.sum(self._labels & ~jnp.any(self._same, axis=-1), axis=-1))

    def false_positives(self) -> jax.Array:
        """Counts predicted classes that are no labels, of shape [...]."""
        return widen(jnp.sum(self._chosen & ~self.hits(), axis=-1))


def _first_occurrences(classes: jax.Array, class_id: int | None) -> jax.Array:
    """Returns whether each element is its row's first of its class, and is `class_id` if that is given."""
    size = classes.shape[-1]
    # (i, j) is true for j < i: an element counts if no earlier one equals it.
    before = jnp.tril(jnp.ones((size, size), bool), -1)
    first = ~jnp.any((classes[..., :, None] == classes[..., None, :]) & before, axis=-1)
    return first if class_id is None else first & (classes == class_id)


def top_k(predictions: Tensor, k: int) -> jax.Array:
    """Returns the classes with the k highest scores; of equal scores, the first class.

    Raises:
        ArgumentError: If there are fewer classes.
    """
    scores = to_array(predictions, "predictions")
    if not scores.ndim or not 1 <= k <= scores.shape[-1]:
        raise ArgumentError(
            "k is at least 1, and at most the number of classes. Received: "
            f"k={k} for predictions of shape {scores.shape}."
        )
    # XLA's top_k orders -0.0 below 0.0; TensorFlow's takes them for equal, and the first wins.
    return jax.lax.top_k(jnp.where(scores == 0, 0, scores), k)[1]


def expand_labels(labels: Tensor, chosen: jax.Array) -> jax.Array:
    """Gives labels a last dimension, for several labels of one example.

    Raises:
        ArgumentError: If they are no integers, or their shape does not match that of the predictions.
    """
    truth = to_array(labels, "labels")
    if not jnp.issubdtype(truth.dtype, jnp.integer):
        raise ArgumentError(f"Labels are classes, integers. Received: {truth.dtype}.")
    truth = truth[..., None] if truth.ndim == chosen.ndim - 1 else truth
    if truth.ndim != chosen.ndim or truth.shape[:-1] != chosen.shape[:-1]:
        raise ArgumentError(
            "Labels and predictions have the same shape but for the last dimension, which labels may lack. Received: "
            f"labels of shape {jnp.shape(labels)}, predictions of shape {chosen.shape}."
        )
    return truth


def broadcast_rows(weights: Tensor | None, rows: jax.Array) -> jax.Array:
    """Broadcasts the examples' weights to shape [...].

    Raises:
        ArgumentError: If their shape does not match.
    """
    if weights is None:
        return jnp.ones_like(rows)
    array = widen(to_array(weights, "weights"))
    fits = array.ndim == rows.ndim and all(w in (1, r) for w, r in zip(array.shape, rows.shape, strict=True))
    if array.ndim and not fits:
        raise ArgumentError(
            "Weights are one number, or one for each example, each size 1 or that of the examples. Received: weights "
            f"of shape {array.shape} for examples of shape {rows.shape}."
        )
    return jnp.broadcast_to(array, rows.shape)
