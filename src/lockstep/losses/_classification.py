"""Losses of classes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lockstep.errors import ArgumentError
from lockstep.losses._collection import LOSSES
from lockstep.losses._regression import check_same, floats
from lockstep.losses._weighted import Reduction, array_of, compute_weighted_loss

_DEFAULT = Reduction.SUM_BY_NONZERO_WEIGHTS


def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns how far scores are from the right side of the margin, as one loss.

    Args:
        labels: 0 or 1, of any shape.
        logits: Scores of the same shape; at least 1, or at most -1, is right.
        weights: What each counts, see `compute_weighted_loss`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float32, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.hinge_loss.
    """
    truth, scores = floats(labels, logits)
    losses = jax.nn.relu(1 - (2 * truth - 1) * scores)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy of independent yes-or-no predictions, as one loss.

    Args:
        multi_class_labels: 0 or 1, or probabilities, of any shape.
        logits: Logits of the same shape.
        weights: What each counts, see `compute_weighted_loss`.
        label_smoothing: How far labels are moved towards 1/2, from 0 to 1.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float of the type of `logits`, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.sigmoid_cross_entropy.
    """
    scores = array_of(logits, "logits")
    truth = array_of(multi_class_labels, "multi_class_labels").astype(scores.dtype)
    check_same(truth, scores)
    if label_smoothing > 0:
        truth = truth * (1 - label_smoothing) + 0.5 * label_smoothing
    losses = jnp.logaddexp(scores, 0) - scores * truth
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy of classes that exclude each other, as one loss. Labels get no gradient.

    Args:
        onehot_labels: Probabilities of the classes, of shape [..., classes].
        logits: Logits of the same shape.
        weights: What each counts, see `compute_weighted_loss`; of shape [...].
        label_smoothing: How far labels are moved towards equal probabilities, from 0 to 1.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float of the type of `logits`, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.softmax_cross_entropy.
    """
    scores = array_of(logits, "logits")
    truth = array_of(onehot_labels, "onehot_labels").astype(scores.dtype)
    check_same(truth, scores)
    if label_smoothing > 0:
        truth = truth * (1 - label_smoothing) + label_smoothing / truth.shape[-1]
    logs = jax.nn.log_softmax(_precise(scores))
    losses = -jnp.sum(jax.lax.stop_gradient(truth) * logs, axis=-1).astype(scores.dtype)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy of classes that exclude each other, as one loss.

    Args:
        labels: The right classes, integers of shape [...] or [..., 1]. The loss of one that is no class is NaN.
        logits: Logits of shape [..., classes].
        weights: What each counts, see `compute_weighted_loss`; of shape [...] or [..., 1].
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float of the type of `logits`, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes do not match, or labels are no integers.

    Source: tf.compat.v1.losses.sparse_softmax_cross_entropy.
    """
    scores, classes = array_of(logits, "logits"), _classes_of(labels, array_of(logits, "logits"))
    logs = jax.nn.log_softmax(_precise(scores))
    is_class = (classes >= 0) & (classes < scores.shape[-1])
    chosen = jnp.take_along_axis(logs, jnp.where(is_class, classes, 0)[..., None], axis=-1)[..., 0]
    losses = jnp.where(is_class, -chosen, jnp.nan).astype(scores.dtype)
    return compute_weighted_loss(losses, _squeezed(weights, losses), scope, loss_collection, reduction)


def _classes_of(labels: Any, scores: jax.Array) -> jax.Array:
    """Returns labels with one dimension less than the logits."""
    classes = array_of(labels, "labels")
    if classes.ndim == scores.ndim and classes.shape[-1] == 1:
        classes = classes[..., 0]
    if classes.shape != scores.shape[:-1]:
        raise ArgumentError(
            "Labels have the shape of the logits without their last dimension. Received: labels of shape "
            f"{jnp.shape(labels)}, logits of shape {scores.shape}."
        )
    if not jnp.issubdtype(classes.dtype, jnp.integer):
        raise ArgumentError(f"Labels are classes, integers. Received: {classes.dtype}. Cast them to int32.")
    return classes


def _squeezed(weights: Any, losses: jax.Array) -> jax.Array:
    array = array_of(weights, "weights")
    return array[..., 0] if array.ndim == losses.ndim + 1 and array.shape[-1] == 1 else array


def _precise(scores: jax.Array) -> jax.Array:
    """Returns logits in at least 32 bits."""
    return scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
