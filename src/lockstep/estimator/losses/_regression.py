"""Losses of regressors."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator.losses._weighted import (
    LOSSES,
    Reduction,
    add_loss,
    check_weights,
    compute_weighted_loss,
    count_nonzero,
    divide,
    to_array,
)

_DEFAULT = Reduction.SUM_BY_NONZERO_WEIGHTS


def absolute_difference(
    labels: Tensor,
    predictions: Tensor,
    weights: Tensor = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the absolute differences between predictions and labels, reduced to one number.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: The weight of each element, see `compute_weighted_loss`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float32, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.absolute_difference.
    """
    truth, guesses = to_floats(labels, predictions)
    return compute_weighted_loss(jnp.abs(guesses - truth), weights, scope, loss_collection, reduction)


def mean_squared_error(
    labels: Tensor,
    predictions: Tensor,
    weights: Tensor = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the squared differences between predictions and labels, reduced to one number.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: The weight of each element, see `compute_weighted_loss`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Source: tf.compat.v1.losses.mean_squared_error.
    """
    truth, guesses = to_floats(labels, predictions)
    # Without a factor of 1/2, as tf.compat.v1.losses, unlike tf.nn.l2_loss.
    return compute_weighted_loss(jnp.square(guesses - truth), weights, scope, loss_collection, reduction)


def huber_loss(
    labels: Tensor,
    predictions: Tensor,
    weights: Tensor = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the Huber loss, quadratic up to `delta` and linear beyond, reduced to one number.

    Args:
        labels: The right values, of any shape.
        predictions: Values, of the same shape.
        weights: The weight of each element, see `compute_weighted_loss`.
        delta: The difference at which the loss becomes linear.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Source: tf.compat.v1.losses.huber_loss.
    """
    truth, guesses = to_floats(labels, predictions)
    distance = jnp.abs(guesses - truth)
    # TensorFlow's form without a branch: both cases from the part of the distance up to delta.
    curved = jnp.minimum(distance, delta)
    losses = 0.5 * curved * curved + delta * (distance - curved)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def log_loss(
    labels: Tensor,
    predictions: Tensor,
    weights: Tensor = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy between probabilities, reduced to one number.

    Args:
        labels: The right probabilities, of any shape.
        predictions: Probabilities, of the same shape.
        weights: The weight of each element, see `compute_weighted_loss`.
        epsilon: Added before logarithms are taken.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Source: tf.compat.v1.losses.log_loss.
    """
    truth, guesses = to_floats(labels, predictions)
    # epsilon inside of both logarithms, as TensorFlow: probabilities of exactly 0 and 1 stay finite.
    losses = -truth * jnp.log(guesses + epsilon) - (1 - truth) * jnp.log(1 - guesses + epsilon)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def cosine_distance(
    labels: Tensor,
    predictions: Tensor,
    axis: int | None = None,
    weights: Tensor = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
    dim: int | None = None,
) -> jax.Array:
    """Returns one minus the cosines between vectors of length 1, reduced to one number.

    Args:
        labels: The right vectors, of any shape.
        predictions: Vectors, of the same shape.
        axis: The dimension along which the vectors lie.
        weights: The weight of each element, see `compute_weighted_loss`; of size 1 along `axis`.
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
    truth, guesses = to_floats(labels, predictions)
    # TensorFlow does not normalize: vectors of other lengths give no cosines.
    losses = 1 - jnp.sum(truth * guesses, axis=dim if axis is None else axis, keepdims=True)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def mean_pairwise_squared_error(
    labels: Tensor,
    predictions: Tensor,
    weights: Tensor = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
) -> jax.Array:
    """Returns the squared error of differences between elements of an example, summed over examples.

    Each example's loss is the mean, over all pairs of its elements, of the squared difference between their errors.

    Args:
        labels: The right values, of shape [batch, ...].
        predictions: Values, of the same shape.
        weights: The weight of each element: a number, or an array of the same rank, each size 1 or that of `labels`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes do not match.

    Source: tf.compat.v1.losses.mean_pairwise_squared_error.
    """
    truth, guesses = to_floats(labels, predictions)
    errors = guesses - truth
    factors = check_weights(weights, truth)
    axes = tuple(range(1, errors.ndim))
    # The number n of elements that count; each example is compared within itself only.
    count = count_nonzero(jnp.broadcast_to(factors, errors.shape), axes, True)
    # TensorFlow's two terms: the sum over pairs (i, j) of (e_i - e_j)^2 is 2 n sum(e^2) - 2 (sum e)^2.
    squares = divide(jnp.sum(errors * errors, axes, keepdims=True), jnp.maximum(count - 1, 0))
    mixed = divide(jnp.square(jnp.sum(errors, axes, keepdims=True)), jnp.maximum(count * (count - 1), 0))
    loss = jnp.where(jnp.sum(count) > 0, jnp.sum(2 * (squares - mixed) * factors), 0)
    add_loss(loss, loss_collection)
    return loss


def to_floats(labels: Tensor, predictions: Tensor) -> tuple[jax.Array, jax.Array]:
    """Converts labels and predictions of one shape to float32."""
    # tf.compat.v1.losses casts both, integers and half precision alike.
    truth = to_array(labels, "labels").astype(jnp.float32)
    guesses = to_array(predictions, "predictions").astype(jnp.float32)
    check_same_shape(truth, guesses)
    return truth, guesses


def check_same_shape(labels: jax.Array, predictions: jax.Array) -> None:
    """Checks that labels and predictions have the same shape."""
    # (batch, 1) against (batch,) would broadcast to (batch, batch), and train on a loss that looks plausible.
    if labels.shape != predictions.shape:
        raise ArgumentError(
            f"Labels and predictions have the same shape. Received: labels of shape {labels.shape}, predictions of "
            f"shape {predictions.shape}."
        )
