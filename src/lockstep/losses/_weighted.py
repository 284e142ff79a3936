"""How the losses of elements become one loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._model_fn.text import is_text
from lockstep.errors import ArgumentError
from lockstep.losses._collection import LOSSES, add_loss, note_reduction


class Reduction:
    """Ways to reduce weighted losses of elements.

    Attributes:
        NONE: Not at all.
        SUM: Their sum.
        SUM_OVER_BATCH_SIZE: Their sum divided by the number of elements.
        MEAN: Their sum divided by the sum of the weights.
        SUM_BY_NONZERO_WEIGHTS: Their sum divided by the number of weights that are not zero; the default.
        SUM_OVER_NONZERO_WEIGHTS: The same.

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
        """Returns all of them."""
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
        """Checks that `key` is one of them.

        Raises:
            ArgumentError: If it is not.
        """
        if key not in cls.all():
            raise ArgumentError(f"A reduction is one of {', '.join(dict.fromkeys(cls.all()))}. Received: {key!r}.")


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> jax.Array:
    """Returns one loss of the losses of elements. In a model_fn, it is also added to a collection.

    Args:
        losses: Floats of any shape.
        weights: What each counts: a number, or an array of the same rank, each size 1 or that of `losses`.
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
    given = array_of(losses, "losses")
    elements = given.astype(jnp.float32)
    counted = fitting(weights, elements)
    loss = _reduced(elements * counted, jnp.broadcast_to(counted, elements.shape), reduction).astype(given.dtype)
    add_loss(loss, loss_collection)
    return loss


def _reduced(weighted: jax.Array, weights: jax.Array, reduction: str) -> jax.Array:
    if reduction == Reduction.NONE:
        return weighted
    total = jnp.sum(weighted)
    if reduction == Reduction.SUM:
        return total
    if reduction == Reduction.MEAN:
        return over(total, jnp.sum(weights))
    if reduction == Reduction.SUM_OVER_BATCH_SIZE:
        return over(total, jnp.float32(weighted.size))
    return over(total, present(weights))


def over(value: jax.Array, divisor: jax.Array) -> jax.Array:
    """Divides; 0 if the divisor is 0."""
    return jnp.where(divisor == 0, 0, value / jnp.where(divisor == 0, 1, divisor))


def present(weights: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Counts weights that are not zero."""
    return jnp.sum((weights != 0).astype(jnp.float32), axis=axis, keepdims=keepdims)


def array_of(value: Any, what: str) -> jax.Array:
    """Returns an argument as an array.

    Raises:
        ArgumentError: If it is text, or nothing.
    """
    if value is None or is_text(value) or isinstance(value, (str, bytes)):
        raise ArgumentError(f"{what} must be numbers. Received: {value!r}.")
    return jnp.asarray(value.value if isinstance(value, keras.Variable) else value)


def fitting(weights: Any, values: jax.Array) -> jax.Array:
    """Returns weights as float32, as they broadcast to `values`.

    Raises:
        ArgumentError: If they are neither one number, nor of the same rank with each size 1 or the same.
    """
    array = array_of(weights, "weights").astype(jnp.float32)
    fits = array.ndim == values.ndim and all(w in (1, v) for w, v in zip(array.shape, values.shape, strict=True))
    if array.ndim and not fits:
        raise ArgumentError(
            "Weights are one number, or an array of the losses' rank in which each size is 1 or that of the losses. "
            f"Received: weights of shape {array.shape}, losses of shape {values.shape}."
        )
    return array
