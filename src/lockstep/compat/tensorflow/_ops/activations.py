"""Activations, losses on logits, and the other functions of tf.nn without windows."""

# ruff: noqa: D417

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._logits import remember
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.make import unary
from lockstep.compat.tensorflow._ops.random import uniform
from lockstep.compat.tensorflow._types import AxisLike, Seed, ShapeLike, SizeLike
from lockstep.errors import ArgumentError

__all__ = ["bias_add", "compute_average_loss", "crelu", "dropout", "elu", "embedding_lookup", "gelu", "in_top_k"]
__all__ += ["l2_loss", "l2_normalize", "leaky_relu", "log_poisson_loss", "log_softmax", "moments", "relu", "relu6"]
__all__ += ["scale_regularization_loss", "selu", "sigmoid_cross_entropy_with_logits", "silu", "softmax"]
__all__ += ["softmax_cross_entropy_with_logits", "sparse_softmax_cross_entropy_with_logits", "swish"]
__all__ += ["weighted_cross_entropy_with_logits"]

# Klambauer et al. 2017: with these, mean 0 and variance 1 are a fixed point of the layer.
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _elu(x: Tensor) -> Any:
    # np.where computes both branches; without the minimum expm1 overflows for large x.
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0))).astype(x.dtype)


def _selu(x: Tensor) -> Any:
    return (_SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0)))).astype(x.dtype)


def _unary(name: str, what: str, host: Any, device: Any) -> Any:
    return unary(f"tf.nn.{name}", what, name, host=host, device=device, floats=False)


relu = _unary("relu", "max(x, 0)", lambda x: np.maximum(x, x.dtype.type(0)), jax.nn.relu)
relu6 = _unary("relu6", "min(max(x, 0), 6)", lambda x: np.clip(x, x.dtype.type(0), x.dtype.type(6)), jax.nn.relu6)
elu = _unary("elu", "x, or exp(x) - 1 where x is negative", _elu, jax.nn.elu)
selu = _unary("selu", "the scaled elu", _selu, jax.nn.selu)


def silu(features: Tensor, beta: float = 1.0) -> Tensor:
    """Computes x * sigmoid(beta * x). Source: tf.nn.silu."""
    from lockstep.compat.tensorflow._ops.elementwise import multiply, sigmoid

    return multiply(features, sigmoid(multiply(features, beta)))


swish = silu


def gelu(features: Tensor, approximate: bool = False, name: str | None = None) -> Tensor:
    """Computes x times the share of a normal distribution below x, or a close formula. Source: tf.nn.gelu."""
    xp, x = dispatch.pick(features)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.gelu(x, approximate)
    # numpy has none.
    result = jax.nn.gelu(x, approximate)
    return dispatch.give(xp, np.asarray(result) if xp is dispatch.HOST else result)


def leaky_relu(features: Tensor, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """Computes max(x, alpha * x). Source: tf.nn.leaky_relu."""
    xp, x = dispatch.pick(features)
    return dispatch.give(xp, xp.maximum(x, x * alpha))


def crelu(features: Tensor, axis: int = -1, name: str | None = None) -> Tensor:
    """Joins relu(x) and relu(-x). Source: tf.nn.crelu."""
    xp, x = dispatch.pick(features)
    return dispatch.give(xp, xp.concatenate([xp.maximum(x, 0), xp.maximum(-x, 0)], axis=axis))


def softmax(logits: Tensor, axis: int | None = None, name: str | None = None) -> Tensor:
    """Computes exp(x) / sum(exp(x)) along an axis, by default the last. Source: tf.nn.softmax."""
    from lockstep.compat.tensorflow._ops.elementwise import exp

    result = exp(log_softmax(logits, axis))
    # TensorFlow's softmax along another axis ends in a transposition, behind which no crossentropy looks.
    if isinstance(result, Tracer) and axis in (None, -1, len(result.shape) - 1):
        remember("Softmax", result, logits)
    return result


def log_softmax(logits: Tensor, axis: int | None = None, name: str | None = None) -> Tensor:
    """Computes x - log(sum(exp(x))) along an axis, by default the last. Source: tf.nn.log_softmax."""
    xp, x = dispatch.pick(logits)
    axis = -1 if axis is None else int(axis)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.log_softmax(x, axis=axis)
    # Subtracting the maximum keeps exp from overflowing; the result is the same.
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    return dispatch.give(xp, shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True)))


def softmax_cross_entropy_with_logits(
    labels: Tensor, logits: Tensor, axis: int = -1, name: str | None = None
) -> Tensor:
    """Returns the cross entropy of each example; `labels` are distributions over the axis.

    Where labels do not add up to one, derivatives by the logits are TensorFlow's: `softmax(logits) - labels`.

    Source: tf.nn.softmax_cross_entropy_with_logits.
    """
    xp, y, x = dispatch.pick(labels, logits)
    loss = -xp.sum(y * dispatch.to_array(xp, log_softmax(x, axis)), axis=axis)
    return dispatch.give(xp, loss if xp is dispatch.HOST else loss + derivative_of_distributions(y, x, axis))


def derivative_of_distributions(labels: Tensor, logits: Tensor, axis: int = -1) -> Any:
    """Returns zero, which adds to a cross entropy what its derivative lacks for labels to be taken as distributions."""
    total: Any = keras.ops.logsumexp(logits, axis=axis)
    lack: Any = keras.ops.sum(labels, axis=axis)
    return (1.0 - lack) * (total - keras.ops.stop_gradient(total))


def sparse_softmax_cross_entropy_with_logits(labels: Tensor, logits: Tensor, name: str | None = None) -> Tensor:
    """Returns the cross entropy of each example; `labels` are numbers of classes. One that is none gives NaN.

    Source: tf.nn.sparse_softmax_cross_entropy_with_logits.
    """
    xp, y, x = dispatch.pick(labels, logits)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.sparse_categorical_crossentropy(y, x, from_logits=True)
    if tuple(y.shape) != tuple(x.shape[:-1]):
        raise ArgumentError(
            "labels must have the shape of logits without the last dimension. Received: "
            f"{tuple(y.shape)} and {tuple(x.shape)}."
        )
    # A comparison, not indexing: a class out of range gives NaN, as on TensorFlow's GPUs, where JAX would clamp it.
    hot = xp.expand_dims(y, -1) == xp.arange(x.shape[-1])
    loss = -xp.sum(xp.where(hot, dispatch.to_array(xp, log_softmax(x)), 0), axis=-1)
    known = xp.any(hot, axis=-1)
    return dispatch.give(xp, xp.where(known, loss, xp.asarray(np.nan, loss.dtype)))


def sigmoid_cross_entropy_with_logits(labels: Tensor = None, logits: Tensor = None, name: str | None = None) -> Tensor:
    """Returns the cross entropy of each element. Source: tf.nn.sigmoid_cross_entropy_with_logits."""
    xp, y, x = dispatch.pick(labels, logits)
    # TensorFlow's stable form max(x, 0) - x * y + log(1 + exp(-|x|)).
    return dispatch.give(xp, xp.logaddexp(x, xp.zeros_like(x)) - x * y)


def weighted_cross_entropy_with_logits(
    labels: Tensor, logits: Tensor, pos_weight: Tensor, name: str | None = None
) -> Tensor:
    """Returns the cross entropy of each element, with a weight on the positive labels.

    Source: tf.nn.weighted_cross_entropy_with_logits.
    """
    xp, y, x = dispatch.pick(labels, logits)
    weight = 1 + (pos_weight - 1) * y
    return dispatch.give(xp, (1 - y) * x + weight * xp.logaddexp(-x, xp.zeros_like(x)))


def log_poisson_loss(
    targets: Tensor, log_input: Tensor, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """Computes exp(log_input) - targets * log_input, or the whole loss by Stirling. Source: tf.nn.log_poisson_loss."""
    xp, y, c = dispatch.pick(targets, log_input)
    loss = xp.exp(c) - c * y
    if compute_full_loss:
        # TensorFlow adds Stirling's terms for targets above 1 only. log must not see 0 in the branch that is not taken:
        # its gradient would be NaN.
        safe = xp.where(y > 1, y, xp.ones_like(y))
        stirling = safe * xp.log(safe) - safe + 0.5 * xp.log(2 * np.float32(np.pi) * safe)
        loss = loss + xp.where(y > 1, stirling, xp.zeros_like(y))
    return dispatch.give(xp, loss)


def l2_loss(t: Tensor, name: str | None = None) -> Tensor:
    """Computes half of the sum of squares. Source: tf.nn.l2_loss."""
    xp, x = dispatch.pick(t)
    return dispatch.give(xp, xp.sum(xp.square(x)) / 2)


def l2_normalize(
    x: Tensor, axis: AxisLike = None, epsilon: float = 1e-12, name: str | None = None, dim: AxisLike = None
) -> Tensor:
    """Divides by the Euclidean norm along the axes. Source: tf.math.l2_normalize."""
    xp, x = dispatch.pick(x)
    axis = dispatch.to_static(dim if axis is None else axis)
    total = xp.sum(xp.square(x), axis=axis, keepdims=True)
    return dispatch.give(xp, x / xp.sqrt(xp.maximum(total, epsilon)))


def bias_add(value: Tensor, bias: Tensor, data_format: str | None = None, name: str | None = None) -> Tensor:
    """Adds a vector to the last dimension, or with a data format "NC..." to the second. Source: tf.nn.bias_add."""
    xp, x, b = dispatch.pick(value, bias)
    # "NCHW", "NCDHW": channels are the second dimension.
    if data_format and data_format.startswith("NC"):
        b = xp.reshape(b, (-1, *(1,) * (len(x.shape) - 2)))
    return dispatch.give(xp, x + b)


def moments(
    x: Tensor, axes: AxisLike, shift: object = None, keepdims: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Returns means and variances over the axes; `shift` has no effect in TensorFlow and must be `None`.

    Source: tf.nn.moments.
    """
    if shift is not None:
        raise ArgumentError("shift has no effect in TensorFlow; leave it out.")
    from lockstep.compat.tensorflow._ops.reduce import reduce_mean, reduce_variance

    return reduce_mean(x, axes, keepdims), reduce_variance(x, axes, keepdims)


def dropout(
    x: Tensor, rate: Tensor, noise_shape: ShapeLike = None, seed: Seed = None, name: str | None = None
) -> Tensor:
    """Sets a share `rate` of the elements to zero and scales the others up.

    Args:
        x: Floating-point numbers.
        rate: The share, from 0 up to but without 1.
        noise_shape: Which elements are kept or dropped together, as a shape that broadcasts.
        seed: As of `tf.random.uniform`. In a layer, use keras.layers.Dropout: JAX must be given its randomness.

    Source: tf.nn.dropout.
    """
    _, x = dispatch.pick(x)
    # None in noise_shape takes the size of x there.
    shape = [s if n is None else n for n, s in zip(noise_shape or [None] * len(x.shape), x.shape, strict=True)]
    xp, x, drawn = dispatch.pick(x, uniform(shape, seed=seed))
    # TensorFlow keeps where the number is not less than the rate, so that rate 0 keeps all.
    keep = drawn >= rate
    return dispatch.give(xp, xp.where(keep, x / (1 - rate), xp.zeros((), x.dtype)))


def embedding_lookup(params: Tensor, ids: Tensor, max_norm: float | None = None, name: str | None = None) -> Tensor:
    """Takes rows by their numbers, scaled down to the norm `max_norm` if given. Source: tf.nn.embedding_lookup."""
    from lockstep.compat.tensorflow._ops.indexing import gather
    from lockstep.compat.tensorflow._ops.products import clip_by_norm
    from lockstep.compat.tensorflow._shards import whole_of

    params = whole_of(params)
    if isinstance(params, (list, tuple)):
        if len(params) != 1:
            raise ArgumentError(
                "params must be one tensor, or all shards of a variable that a strategy's partitioner divides: JAX "
                "divides tables by itself. Received a list of several."
            )
        params = params[0]
    rows = gather(params, ids)
    # Each row is clipped by itself: over the dimensions after those of ids.
    first = len(np.shape(ids))
    return rows if max_norm is None else clip_by_norm(rows, max_norm, list(range(first, len(rows.shape))))


def in_top_k(targets: Tensor, predictions: Tensor, k: SizeLike, name: str | None = None) -> Tensor:
    """Returns whether the target of each example is among the `k` classes predicted highest; ties count.

    Source: tf.math.in_top_k.
    """
    xp, y, x = dispatch.pick(targets, predictions)
    if xp is dispatch.SYMBOLIC:
        return keras.ops.in_top_k(y, x, k)
    # TensorFlow's rule: a target out of range, or whose own prediction is not finite, is in no top k.
    inside = (y >= 0) & (y < x.shape[-1])
    own = xp.take_along_axis(x, xp.expand_dims(xp.where(inside, y, 0), -1), axis=-1)
    return dispatch.give(xp, inside & (xp.sum(x > own, axis=-1) < dispatch.to_static(k)) & xp.isfinite(own[..., 0]))


def compute_average_loss(
    per_example_loss: Tensor, sample_weight: Tensor = None, global_batch_size: SizeLike = None
) -> Tensor:
    """Sums the loss of examples and divides by the global batch.

    Args:
        per_example_loss: One loss per example of this replica.
        sample_weight: One weight per example.
        global_batch_size: By default that of this tensor times the replicas of the strategy whose scope is open.

    Source: tf.nn.compute_average_loss.
    """
    from lockstep.distribute import get_strategy

    xp, loss = dispatch.pick(per_example_loss)
    if sample_weight is not None:
        weights = dispatch.to_array(xp, sample_weight)
        loss = loss * xp.reshape(weights, (*weights.shape, *(1,) * (len(loss.shape) - len(weights.shape))))
    # Every replica divides by the global batch: the sum over replicas is then one device's mean, whatever the shares.
    size = global_batch_size if global_batch_size is not None else loss.shape[0] * get_strategy().num_replicas_in_sync
    return dispatch.give(xp, xp.sum(loss) / dispatch.to_static(size))


def scale_regularization_loss(regularization_loss: Tensor) -> Tensor:
    """Divides the sum of a loss by the number of replicas of the strategy. Source: tf.nn.scale_regularization_loss."""
    from lockstep.distribute import get_strategy

    xp, loss = dispatch.pick(regularization_loss)
    # Every replica computes the whole penalty, and their losses are summed.
    return dispatch.give(xp, xp.sum(loss) / get_strategy().num_replicas_in_sync)


named.record_names(globals())
