"""Reductions of the examples' losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import current

SUM_OVER_BATCH_SIZE = "sum_over_batch_size"

# TensorFlow's names, of tf.losses.Reduction and of tf.compat.v1.losses.Reduction, and what they mean.
_SUM = ("sum", "weighted_sum")
_MEAN_OF_ALL = ("auto", SUM_OVER_BATCH_SIZE, "weighted_sum_over_batch_size")
_BY_WEIGHTS = ("weighted_mean",)
_BY_COUNT = ("weighted_sum_by_nonzero_weights",)


def check_reduction(reduction: object) -> str:
    """Checks a reduction.

    Raises:
        ArgumentError: If it is no reduction, or "none".
    """
    known = (*_MEAN_OF_ALL, *_SUM, *_BY_WEIGHTS, *_BY_COUNT)
    if reduction not in known:
        raise ArgumentError(f"loss_reduction must be one of {', '.join(known)}. Received: {reduction!r}.")
    return reduction


def reduce_losses(losses: jax.Array, weights: jax.Array | None, reduction: str) -> jax.Array:
    """Reduces losses to one number; replicas sum their sums and average their means.

    Args:
        losses: The examples' losses, float32 of any shape.
        weights: In a shape that broadcasts to that of `losses`; `None` for 1.
        reduction: See `check_reduction`.
    """
    scope = current()
    if scope is not None:
        scope.loss_reduction = reduction
    weights = jnp.ones_like(losses) if weights is None else jnp.broadcast_to(weights, losses.shape)
    total = jnp.sum(losses * weights)
    if reduction in _SUM:
        return total
    if reduction in _MEAN_OF_ALL:
        return total / losses.size
    count = jnp.sum(weights) if reduction in _BY_WEIGHTS else jnp.sum(weights != 0)
    return jnp.where(count > 0, total / jnp.maximum(count, jnp.finfo(losses.dtype).tiny), 0)
