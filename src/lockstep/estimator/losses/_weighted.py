"""Weights and reductions of losses, and the collections that losses join in a model_fn."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import keras

from lockstep._text import is_text
from lockstep._types import Tensor
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._model_fn.scope import current, demand

# The names of tf.compat.v1.GraphKeys: programs pass them, and add to them, as text.
LOSSES = "losses"
REGULARIZATION_LOSSES = "regularization_losses"


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
        # In TensorFlow's order, both names of one reduction included.
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
    # The step sums losses that are sums over replicas, and averages those that are means, as one device would have it.
    model_fn = current()
    if model_fn is not None:
        model_fn.loss_reduction = reduction
    array = to_array(losses, "losses")
    # In float32, as TensorFlow does: a float16 sum over a batch would overflow.
    elements = array.astype(jnp.float32)
    factors = check_weights(weights, elements)
    # The divisors of the sum. Weights are broadcast first: one weight of 0.5 counts once for each element.
    divisors: dict[str, Callable[[jax.Array], jax.Array]] = {
        Reduction.SUM: lambda weights: jnp.float32(1),
        Reduction.MEAN: jnp.sum,
        Reduction.SUM_OVER_BATCH_SIZE: lambda weights: jnp.float32(weights.size),
        Reduction.SUM_BY_NONZERO_WEIGHTS: count_nonzero,
    }
    loss = elements * factors
    if reduction != Reduction.NONE:
        loss = divide(jnp.sum(loss), divisors[reduction](jnp.broadcast_to(factors, elements.shape)))
    loss = loss.astype(array.dtype)
    add_loss(loss, loss_collection)
    return loss


def divide(value: jax.Array, divisor: jax.Array) -> jax.Array:
    """Returns `value / divisor`; 0 where the divisor is 0."""
    # tf.compat.v1.losses gives 0 for a batch of weights 0. The inner where: 0 / 0 in the branch not taken would still
    # make the gradient NaN.
    return jnp.where(divisor == 0, 0, value / jnp.where(divisor == 0, 1, divisor))


def count_nonzero(weights: jax.Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> jax.Array:
    """Counts weights that are not zero."""
    return jnp.sum((weights != 0).astype(jnp.float32), axis=axis, keepdims=keepdims)


def to_array(value: Tensor, argument: str) -> jax.Array:
    """Converts an argument to an array; refuses text and `None`."""
    if value is None or is_text(value) or isinstance(value, (str, bytes)):
        raise ArgumentError(f"{argument} must be numbers. Received: {value!r}.")
    return jnp.asarray(value.value if isinstance(value, keras.Variable) else value)


def check_weights(weights: Tensor, values: jax.Array) -> jax.Array:
    """Returns weights as float32 that broadcast to `values`."""
    # Stricter than numpy: TensorFlow's `weights_broadcast_ops` never adds dimensions, so that weights of shape (batch,)
    # beside losses of (batch, batch) are an error rather than a silent choice of an axis.
    array = to_array(weights, "weights").astype(jnp.float32)
    fits = array.ndim == values.ndim and all(w in (1, v) for w, v in zip(array.shape, values.shape, strict=True))
    if array.ndim and not fits:
        raise ArgumentError(
            "Weights are one number, or an array of the losses' rank in which each size is 1 or that of the losses. "
            f"Received: weights of shape {array.shape}, losses of shape {values.shape}."
        )
    return array


def add_loss(loss: Tensor, loss_collection: str | None = LOSSES) -> None:
    """Adds a loss to a collection, for `get_total_loss`. Outside of a model_fn, does nothing.

    Args:
        loss: An array of floats.
        loss_collection: The name of a collection; `None` for none.

    Source: tf.compat.v1.losses.add_loss.
    """
    # A loss is also computed outside of a model_fn, in tests and notebooks, where nothing collects it.
    scope = current()
    if scope is not None and loss_collection:
        scope.collections.setdefault(loss_collection, []).append(loss)


def get_losses(scope: None = None, loss_collection: str = LOSSES) -> list[Tensor]:
    """Returns the losses computed so far in this call of the model_fn.

    Args:
        scope: Only `None`.
        loss_collection: The name of a collection.

    Raises:
        StartupOrderError: Outside of a model_fn.
        UnsupportedError: For a scope.

    Source: tf.compat.v1.losses.get_losses.
    """
    _refuse_scope(scope)
    return list(demand("lockstep.estimator.losses.get_losses").collections.get(loss_collection, []))


def get_regularization_losses(scope: None = None) -> list[Tensor]:
    """Returns the penalties of the layers' regularizers, and the collection "regularization_losses".

    Args:
        scope: Only `None`.

    Raises:
        StartupOrderError: Outside of a model_fn.
        UnsupportedError: For a scope.

    Source: tf.compat.v1.losses.get_regularization_losses.
    """
    _refuse_scope(scope)
    here = demand("lockstep.estimator.losses.get_regularization_losses")
    # Regularizers of layers join no collection in Keras 3, so they are computed from the variables.
    # All so far: a layer made after this call is not in the sum, as in TensorFlow.
    penalised = [v for v in here.trainable_variables() if v.regularizer is not None]
    return [*here.collections.get(REGULARIZATION_LOSSES, []), *(v.regularizer(v.value) for v in penalised)]


def get_regularization_loss(scope: None = None, name: str = "total_regularization_loss") -> jax.Array:
    """Returns the sum of `get_regularization_losses`; 0 if there are none.

    Args:
        scope: Only `None`.
        name: Names the operation in TensorFlow's graphs.

    Raises:
        StartupOrderError: Outside of a model_fn.
        UnsupportedError: For a scope.

    Source: tf.compat.v1.losses.get_regularization_loss.
    """
    return _sum(get_regularization_losses(scope))


def get_total_loss(add_regularization_losses: bool = True, name: str = "total_loss", scope: None = None) -> jax.Array:
    """Returns the sum of the losses computed so far in this call of the model_fn.

    Args:
        add_regularization_losses: Whether to include regularization losses.
        name: Names the operation in TensorFlow's graphs.
        scope: Only `None`.

    Raises:
        StartupOrderError: Outside of a model_fn.
        UnsupportedError: For a scope.

    Source: tf.compat.v1.losses.get_total_loss.
    """
    losses = get_losses(scope)
    return _sum(losses + get_regularization_losses(scope) if add_regularization_losses else losses)


def _sum(losses: list[Tensor]) -> jax.Array:
    return jnp.asarray(sum(losses[1:], losses[0])) if losses else jnp.zeros(())


def _refuse_scope(scope: object) -> None:
    if scope is not None:
        raise UnsupportedError(
            f"Losses are collected without the names of TensorFlow's graphs. Received: scope={scope!r}. Give a "
            "loss a collection of its own with loss_collection."
        )
