"""Losses of values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lockstep.errors import ArgumentError
from lockstep.losses._collection import LOSSES, add_loss
from lockstep.losses._weighted import Reduction, array_of, compute_weighted_loss, fitting, over, present

_DEFAULT = Reduction.SUM_BY_NONZERO_WEIGHTS


def absolute_difference(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the distances of predictions from labels, as one loss.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: What each counts, see `compute_weighted_loss`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float32, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.absolute_difference.
    """
    truth, found = floats(labels, predictions)
    return compute_weighted_loss(jnp.abs(found - truth), weights, scope, loss_collection, reduction)


def mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the squared differences between predictions and labels, as one loss.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: What each counts, see `compute_weighted_loss`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Source: tf.compat.v1.losses.mean_squared_error.
    """
    truth, found = floats(labels, predictions)
    return compute_weighted_loss(jnp.square(found - truth), weights, scope, loss_collection, reduction)


def huber_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns half the squared differences, and beyond `delta` straight lines, as one loss.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: What each counts, see `compute_weighted_loss`.
        delta: Where the lines begin.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Source: tf.compat.v1.losses.huber_loss.
    """
    truth, found = floats(labels, predictions)
    distance = jnp.abs(found - truth)
    curved = jnp.minimum(distance, delta)
    losses = 0.5 * curved * curved + delta * (distance - curved)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def log_loss(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy between probabilities, as one loss.

    Args:
        labels: The right probabilities, of any shape.
        predictions: Probabilities, of the same shape.
        weights: What each counts, see `compute_weighted_loss`.
        epsilon: Added to what a logarithm is taken of.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Source: tf.compat.v1.losses.log_loss.
    """
    truth, found = floats(labels, predictions)
    losses = -truth * jnp.log(found + epsilon) - (1 - truth) * jnp.log(1 - found + epsilon)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
    dim: int | None = None,
) -> jax.Array:
    """Returns one minus the cosines between vectors of length 1, as one loss.

    Args:
        labels: The right vectors, of any shape.
        predictions: Vectors, of the same shape.
        axis: The dimension along which the vectors lie.
        weights: What each counts, see `compute_weighted_loss`; of size 1 along `axis`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.
        dim: The old name of `axis`.

    Raises:
        ArgumentError: If not exactly one of `axis` and `dim` is given, or shapes differ.

    Source: tf.compat.v1.losses.cosine_distance.
    """
    if (axis is None) == (dim is None):
        raise ArgumentError(f"Exactly one of axis and dim, its old name, is given. Received: axis={axis}, dim={dim}.")
    truth, found = floats(labels, predictions)
    along = dim if axis is None else axis
    losses = 1 - jnp.sum(truth * found, axis=along, keepdims=True)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
) -> jax.Array:
    """Returns how much differences within an example differ from those that are right: a sum over examples.

    For each example it is the mean, over all pairs of its elements, of the squared difference between the errors of
    both.

    Args:
        labels: The right values, of shape [batch, ...].
        predictions: Values, of the same shape.
        weights: What each counts: a number, or an array of the same rank, each size 1 or that of `labels`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes do not match.

    Source: tf.compat.v1.losses.mean_pairwise_squared_error.
    """
    truth, found = floats(labels, predictions)
    errors = found - truth
    counted = fitting(weights, truth)
    axes = tuple(range(1, errors.ndim))
    count = present(jnp.broadcast_to(counted, errors.shape), axes, True)
    squares = over(jnp.sum(errors * errors, axes, keepdims=True), jnp.maximum(count - 1, 0))
    mixed = over(jnp.square(jnp.sum(errors, axes, keepdims=True)), jnp.maximum(count * (count - 1), 0))
    loss = jnp.where(jnp.sum(count) > 0, jnp.sum(2 * (squares - mixed) * counted), 0)
    add_loss(loss, loss_collection)
    return loss


def floats(labels: Any, predictions: Any) -> tuple[jax.Array, jax.Array]:
    """Returns labels and predictions as float32.

    Raises:
        ArgumentError: If shapes differ.
    """
    truth = array_of(labels, "labels").astype(jnp.float32)
    found = array_of(predictions, "predictions").astype(jnp.float32)
    check_same(truth, found)
    return truth, found


def check_same(labels: jax.Array, predictions: jax.Array) -> None:
    """Checks that shapes are the same.

    Raises:
        ArgumentError: If they differ.
    """
    if labels.shape != predictions.shape:
        raise ArgumentError(
            f"Labels and predictions have the same shape. Received: labels of shape {labels.shape}, predictions of "
            f"shape {predictions.shape}."
        )
