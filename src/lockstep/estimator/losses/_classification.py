"""Losses of classifiers: hinge loss and cross entropies."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import current
from lockstep.estimator.losses._regression import check_same_shape, to_floats
from lockstep.estimator.losses._weighted import LOSSES, Reduction, compute_weighted_loss, to_array

_DEFAULT = Reduction.SUM_BY_NONZERO_WEIGHTS


def hinge_loss(
    labels: Tensor,
    logits: Tensor,
    weights: Tensor = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the hinge loss, reduced to one number.

    Args:
        labels: 0 or 1, of any shape.
        logits: Scores of the same shape; at least 1, or at most -1, is right.
        weights: The weight of each element, see `compute_weighted_loss`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float32, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.hinge_loss.
    """
    truth, scores = to_floats(labels, logits)
    # Labels of 0 and 1 become -1 and 1.
    losses = jax.nn.relu(1 - (2 * truth - 1) * scores)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sigmoid_cross_entropy(
    multi_class_labels: Tensor,
    logits: Tensor,
    weights: Tensor = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy of independent binary predictions, reduced to one number.

    Args:
        multi_class_labels: 0 or 1, or probabilities, of any shape.
        logits: Logits of the same shape.
        weights: The weight of each element, see `compute_weighted_loss`.
        label_smoothing: Weight of 1/2 in the smoothed labels, from 0 to 1.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float of the type of `logits`, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.sigmoid_cross_entropy.
    """
    scores = to_array(logits, "logits")
    truth = to_array(multi_class_labels, "multi_class_labels").astype(scores.dtype)
    check_same_shape(truth, scores)
    # The targets of a label of 0 and 1 move towards 1/2, those of a softmax towards 1 / classes.
    if label_smoothing > 0:
        truth = truth * (1 - label_smoothing) + 0.5 * label_smoothing
    # log(1 + exp(x)) - x * z, in a form that overflows for no logit.
    losses = jnp.logaddexp(scores, 0) - scores * truth
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def softmax_cross_entropy(
    onehot_labels: Tensor,
    logits: Tensor,
    weights: Tensor = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy of exclusive classes, reduced to one number. Labels get no gradient.

    Args:
        onehot_labels: Probabilities of the classes, of shape [..., classes].
        logits: Logits of the same shape.
        weights: The weight of each element, see `compute_weighted_loss`; of shape [...].
        label_smoothing: Weight of equal probabilities in the smoothed labels, from 0 to 1.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float of the type of `logits`, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes differ.

    Source: tf.compat.v1.losses.softmax_cross_entropy.
    """
    # Losses have the type of the logits, as TensorFlow's ops; labels follow.
    scores = to_array(logits, "logits")
    truth = to_array(onehot_labels, "onehot_labels").astype(scores.dtype)
    check_same_shape(truth, scores)
    if label_smoothing > 0:
        truth = truth * (1 - label_smoothing) + label_smoothing / truth.shape[-1]
    logs = jax.nn.log_softmax(_at_least_float32(scores))
    # stop_gradient: TensorFlow's v1 function differentiates by the logits only, its v2 successor by both.
    losses = -jnp.sum(jax.lax.stop_gradient(truth) * logs, axis=-1).astype(scores.dtype)
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: Tensor,
    logits: Tensor,
    weights: Tensor = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = _DEFAULT,
) -> jax.Array:
    """Returns the cross entropy of exclusive classes given as integers, reduced to one number.

    Args:
        labels: The right classes, integers of shape [...] or [..., 1]. The loss of an unknown class is NaN.
        logits: Logits of shape [..., classes].
        weights: The weight of each element, see `compute_weighted_loss`; of shape [...] or [..., 1].
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: See `compute_weighted_loss`.
        reduction: A value of `Reduction`.

    Returns:
        A float of the type of `logits`, see `compute_weighted_loss`.

    Raises:
        ArgumentError: If shapes do not match, or labels are no integers.

    Source: tf.compat.v1.losses.sparse_softmax_cross_entropy.
    """
    scores = to_array(logits, "logits")
    classes = to_array(labels, "labels")
    if classes.ndim == scores.ndim and classes.shape[-1] == 1:
        classes = classes[..., 0]
    if classes.shape != scores.shape[:-1]:
        raise ArgumentError(
            "Labels have the shape of the logits without their last dimension. Received: labels of shape "
            f"{jnp.shape(labels)}, logits of shape {scores.shape}."
        )
    if not jnp.issubdtype(classes.dtype, jnp.integer):
        raise ArgumentError(f"Labels are classes, integers. Received: {classes.dtype}. Cast them to int32.")
    logs = jax.nn.log_softmax(_at_least_float32(scores))
    # TensorFlow stops at an unknown class on a CPU and gives NaN on a GPU; the host looks at it after the step.
    is_class = (classes >= 0) & (classes < scores.shape[-1])
    running = current()
    if running is not None:
        running.add_check(
            f"Labels must be >= 0 and < {scores.shape[-1]}, the number of classes. Received: labels out of range. "
            "Check the size of the last layer, and what the input_fn makes of the labels.",
            is_class,
        )
    chosen = jnp.take_along_axis(logs, jnp.where(is_class, classes, 0)[..., None], axis=-1)[..., 0]
    losses = jnp.where(is_class, -chosen, jnp.nan).astype(scores.dtype)
    # TensorFlow's `_remove_squeezable_dimensions` treats weights as labels: (batch, 1) fits losses of (batch,).
    factors = to_array(weights, "weights")
    factors = factors[..., 0] if factors.ndim == losses.ndim + 1 and factors.shape[-1] == 1 else factors
    return compute_weighted_loss(losses, factors, scope, loss_collection, reduction)


def _at_least_float32(scores: jax.Array) -> jax.Array:
    # Logits of half precision are widened: a sum of 16-bit exponentials loses most of its digits.
    return scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
