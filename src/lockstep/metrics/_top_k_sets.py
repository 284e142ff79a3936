"""Sets of classes in rows: labels, and predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lockstep.errors import ArgumentError
from lockstep.metrics._shapes import array_of
from lockstep.metrics._streaming import wide


class Sets:
    """Compares the labels of each example with the predicted classes; what is there twice counts once.

    Args:
        labels: Integers of shape [..., labels].
        chosen: Integers of shape [..., k].
        class_id: Look at this class only; `None` for all.
    """

    def __init__(self, labels: jax.Array, chosen: jax.Array, class_id: int | None = None) -> None:
        self._same = labels[..., :, None] == chosen[..., None, :]
        self._labels = _counted(labels, class_id)
        self._chosen = _counted(chosen, class_id)

    def hits(self) -> jax.Array:
        """Whether each predicted class is a label, of shape [..., k]."""
        return jnp.any(self._same, axis=-2)

    def true_positives(self) -> jax.Array:
        """How many labels were predicted, of shape [...]."""
        return wide(jnp.sum(self._labels & jnp.any(self._same, axis=-1), axis=-1))

    def false_negatives(self) -> jax.Array:
        """How many labels were not predicted, of shape [...]."""
        return wide(jnp.sum(self._labels & ~jnp.any(self._same, axis=-1), axis=-1))

    def false_positives(self) -> jax.Array:
        """How many predicted classes are no labels, of shape [...]."""
        return wide(jnp.sum(self._chosen & ~self.hits(), axis=-1))


def _counted(classes: jax.Array, class_id: int | None) -> jax.Array:
    """Which elements of each row count: the first of each class, of one class only if that is given."""
    size = classes.shape[-1]
    before = jnp.tril(jnp.ones((size, size), bool), -1)
    first = ~jnp.any((classes[..., :, None] == classes[..., None, :]) & before, axis=-1)
    return first if class_id is None else first & (classes == class_id)


def top(predictions: Any, k: int) -> jax.Array:
    """Returns the classes with the k highest scores; of equal ones the first.

    Raises:
        ArgumentError: If there are not as many classes.
    """
    scores = array_of(predictions, "predictions")
    if not scores.ndim or not 1 <= k <= scores.shape[-1]:
        raise ArgumentError(
            "k is at least 1, and at most the number of classes. Received: "
            f"k={k} for predictions of shape {scores.shape}."
        )
    # XLA puts -0.0 below 0.0.
    return jax.lax.top_k(jnp.where(scores == 0, 0, scores), k)[1]


def expanded(labels: Any, chosen: jax.Array) -> jax.Array:
    """Returns labels with a last dimension for several of one example.

    Raises:
        ArgumentError: If they are not of the examples that the predictions are of.
    """
    truth = array_of(labels, "labels")
    if not jnp.issubdtype(truth.dtype, jnp.integer):
        raise ArgumentError(f"Labels are classes, integers. Received: {truth.dtype}.")
    truth = truth[..., None] if truth.ndim == chosen.ndim - 1 else truth
    if truth.ndim != chosen.ndim or truth.shape[:-1] != chosen.shape[:-1]:
        raise ArgumentError(
            "Labels and predictions have the same shape but for the last dimension, which labels may lack. Received: "
            f"labels of shape {jnp.shape(labels)}, predictions of shape {chosen.shape}."
        )
    return truth


def broadcast_rows(weights: Any, rows: jax.Array) -> jax.Array:
    """Returns the weights of examples, of shape [...].

    Raises:
        ArgumentError: If they do not fit.
    """
    if weights is None:
        return jnp.ones_like(rows)
    array = wide(array_of(weights, "weights"))
    fits = array.ndim == rows.ndim and all(w in (1, r) for w, r in zip(array.shape, rows.shape, strict=True))
    if array.ndim and not fits:
        raise ArgumentError(
            "Weights are one number, or one for each example, each size 1 or that of the examples. Received: weights "
            f"of shape {array.shape} for examples of shape {rows.shape}."
        )
    return jnp.broadcast_to(array, rows.shape)
