"""What minimize and apply_gradients are called with: a loss, variables, gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._model_fn.scope import ModelScope
from lockstep.errors import ArgumentError

Pair = tuple[Any, Any]


def loss_of(loss: Any, grad_loss: Any = None) -> Any:
    """Returns a loss as one number, whose gradients are wanted.

    Args:
        loss: A number, an array whose sum is meant, or a function of no arguments that returns one.
        grad_loss: The gradient by the loss itself: what each element counts.

    Raises:
        ArgumentError: If it is not of a floating type, or the shapes differ.
    """
    loss = loss() if callable(loss) and not isinstance(loss, keras.Variable) else loss
    array = _floats(loss.value if isinstance(loss, keras.Variable) else loss, "loss")
    if grad_loss is None:
        return jnp.sum(array)
    weights = _floats(grad_loss, "grad_loss")
    if weights.shape != array.shape:
        raise ArgumentError(
            f"grad_loss has the shape of the loss. Received: a loss of shape {array.shape}, grad_loss of shape "
            f"{weights.shape}."
        )
    return jnp.sum(array * jax.lax.stop_gradient(weights))


def _floats(value: Any, what: str) -> jax.Array:
    if not isinstance(value, (int, float, np.ndarray, np.generic, jax.Array)):
        raise ArgumentError(f"{what} must be an array of floats. Received: {value!r}.")
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ArgumentError(f"{what} must be an array of floats. Received: {array.dtype}.")
    return array


def variables_of(scope: ModelScope, var_list: Any) -> list[Any]:
    """Returns the variables to train: those given, or all trainable ones there are so far.

    Raises:
        ArgumentError: If there is none, or one that cannot be trained.
    """
    variables = scope.trainable_variables() if var_list is None else jax.tree.leaves(var_list)
    for variable in variables:
        check_variable(variable)
        if not variable.trainable:
            raise ArgumentError(
                f"var_list names trainable variables. Received: {scope.key_of(variable)}, which is not trainable. "
                "Leave it out, or make it trainable."
            )
    if not variables:
        raise ArgumentError(
            "There must be variables to optimize. Received: none. Make the layers, and call them, before minimize."
        )
    return variables


def check_variable(variable: Any) -> None:
    """Checks that something can be optimized.

    Raises:
        ArgumentError: If it is no variable of Keras.
    """
    if not isinstance(variable, keras.Variable):
        raise ArgumentError(f"Only variables of Keras can be optimized. Received: {variable!r}.")


def pairs_of(grads_and_vars: Any) -> list[Pair]:
    """Returns checked (gradient, variable) pairs, without those that have no gradient.

    Raises:
        ArgumentError: If there is nothing to apply, or something else than such pairs.
    """
    pairs = [_pair(p) for p in grads_and_vars]
    if not pairs:
        raise ArgumentError("There must be variables to update. Received: an empty list of gradients and variables.")
    used = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    if not used:
        raise ArgumentError(
            f"At least one variable must have a gradient. Received: None for each of {_names([v for _, v in pairs])}. "
            "Check that the loss depends on them."
        )
    return used


def _pair(given: Any) -> Pair:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ArgumentError(f"grads_and_vars holds (gradient, variable) pairs. Received: {given!r}.")
    gradient, variable = given
    check_variable(variable)
    return None if gradient is None else _gradient(gradient, variable), variable


def _gradient(gradient: Any, variable: Any) -> jax.Array:
    array = _floats(gradient, f"The gradient of {variable.path}")
    if array.shape != tuple(variable.shape):
        raise ArgumentError(
            f"A gradient has its variable's shape. Received: {array.shape} for {variable.path}, whose shape is "
            f"{tuple(variable.shape)}."
        )
    return array.astype(variable.dtype)


def _names(variables: Sequence[Any]) -> str:
    return ", ".join(v.path for v in variables)
