"""Weights and reductions of losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import keras

from lockstep._text import is_text
from lockstep._types import Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator.losses._collection import LOSSES, add_loss, note_reduction


class Reduction:
    """Reductions of weighted losses.

    Attributes:
        NONE: No reduction.
        SUM: The sum.
        SUM_OVER_BATCH_SIZE: The sum divided by the number of elements.
        MEAN: The sum divided by the sum of the weights.
        SUM_BY_NONZERO_WEIGHTS: The sum divided by the number of weights that are not zero; the default.
        SUM_OVER_NONZERO_WEIGHTS: TensorFlow's older name of SUM_BY_NONZERO_WEIGHTS.

    Source: tf.compat.v1.losses.Reduction.
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Returns all reductions."""
        return (
            cls.NONE,
            cls.SUM,
            cls.MEAN,
            cls.SUM_OVER_BATCH_SIZE,
            cls.SUM_OVER_NONZERO_WEIGHTS,
            cls.SUM_BY_NONZERO_WEIGHTS,
        )

    @classmethod
    def validate(cls, key: str) -> None:
        """Checks that `key` is a reduction.

        Raises:
            ArgumentError: If it is not.
        """
        if key not in cls.all():
            raise ArgumentError(f"A reduction is one of {', '.join(dict.fromkeys(cls.all()))}. Received: {key!r}.")


def compute_weighted_loss(
    losses: Tensor,
    weights: Tensor = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> jax.Array:
    """Weights losses and reduces them to one number. In a model_fn, the result also joins a collection.

    Args:
        losses: Floats of any shape.
        weights: The weight of each element: a number, or an array of the same rank, each size 1 or that of `losses`.
        scope: Names the operation in TensorFlow's graphs.
        loss_collection: The name of the collection; `None` for none.
        reduction: A value of `Reduction`.

    Returns:
        A float of no dimensions, of the type of `losses`; for `Reduction.NONE`, of their shape.

    Raises:
        ArgumentError: If the weights do not fit, or for an unknown reduction.

    Source: tf.compat.v1.losses.compute_weighted_loss.
    """
    Reduction.validate(reduction)
    note_reduction(reduction)
    array = to_array(losses, "losses")
    # In float32, as TensorFlow does: a float16 sum over a batch would overflow.
    elements = array.astype(jnp.float32)
    factors = check_weights(weights, elements)
    loss = _reduce(elements * factors, jnp.broadcast_to(factors, elements.shape), reduction).astype(array.dtype)
    add_loss(loss, loss_collection)
    return loss


def _reduce(weighted: jax.Array, weights: jax.Array, reduction: str) -> jax.Array:
    if reduction == Reduction.NONE:
        return weighted
    total = jnp.sum(weighted)
    if reduction == Reduction.SUM:
        return total
    if reduction == Reduction.MEAN:
        return divide(total, jnp.sum(weights))
    if reduction == Reduction.SUM_OVER_BATCH_SIZE:
        return divide(total, jnp.float32(weighted.size))
    return divide(total, count_nonzero(weights))


def divide(value: jax.Array, divisor: jax.Array) -> jax.Array:
    """Returns `value / divisor`; 0 where the divisor is 0."""
    # The inner where: 0 / 0 in the branch not taken would still make the gradient NaN.
    return jnp.where(divisor == 0, 0, value / jnp.where(divisor == 0, 1, divisor))


def count_nonzero(weights: jax.Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> jax.Array:
    """Counts weights that are not zero."""
    return jnp.sum((weights != 0).astype(jnp.float32), axis=axis, keepdims=keepdims)


def to_array(value: Tensor, argument: str) -> jax.Array:
    """Converts an argument to an array.

    Raises:
        ArgumentError: If it is text, or `None`.
    """
    if value is None or is_text(value) or isinstance(value, (str, bytes)):
        raise ArgumentError(f"{argument} must be numbers. Received: {value!r}.")
    return jnp.asarray(value.value if isinstance(value, keras.Variable) else value)


def check_weights(weights: Tensor, values: jax.Array) -> jax.Array:
    """Returns weights as float32 that broadcast to `values`.

    Raises:
        ArgumentError: If they are neither one number, nor of the same rank with each size 1 or the same.
    """
    array = to_array(weights, "weights").astype(jnp.float32)
    fits = array.ndim == values.ndim and all(w in (1, v) for w, v in zip(array.shape, values.shape, strict=True))
    if array.ndim and not fits:
        raise ArgumentError(
            "Weights are one number, or an array of the losses' rank in which each size is 1 or that of the losses. "
            f"Received: weights of shape {array.shape}, losses of shape {values.shape}."
        )
    return array
