"""Collections of losses of one model_fn call."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.scope import current, demand

LOSSES = "losses"
REGULARIZATION_LOSSES = "regularization_losses"


def add_loss(loss: Tensor, loss_collection: str | None = LOSSES) -> None:
    """Adds a loss to a collection, for `get_total_loss`. Outside of a model_fn, does nothing.

    Args:
        loss: An array of floats.
        loss_collection: The name of a collection; `None` for none.

    Source: tf.compat.v1.losses.add_loss.
    """
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


def note_reduction(reduction: str) -> None:
    """Records the reduction of the last loss in the model_fn's scope."""
    # The step sums losses that are sums over replicas, and averages those that are means, as one device would have it.
    scope = current()
    if scope is not None:
        scope.loss_reduction = reduction


def _sum(losses: list[Tensor]) -> jax.Array:
    return jnp.asarray(sum(losses[1:], losses[0])) if losses else jnp.zeros(())


def _refuse_scope(scope: object) -> None:
    if scope is not None:
        raise UnsupportedError(
            f"Losses are collected without the names of TensorFlow's graphs. Received: scope={scope!r}. Give a "
            "loss a collection of its own with loss_collection."
        )
