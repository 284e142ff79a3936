"""Arguments of `minimize` and `apply_gradients`, checked: losses, variables, gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._types import Array, PyTree, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import ModelScope

Pair = tuple[Any, Any]


def scalar_loss(loss: Tensor, grad_loss: Tensor | None = None) -> Any:
    """Reduces a loss to the scalar that is differentiated.

    Args:
        loss: A number, an array, which is summed, or a function of no arguments that returns one.
        grad_loss: The gradient with respect to the loss: a weight for each element.

    Raises:
        ArgumentError: If the loss is not of a floating type, or the shapes differ.
    """
    loss = loss() if callable(loss) and not isinstance(loss, keras.Variable) else loss
    array = _to_floats(loss.value if isinstance(loss, keras.Variable) else loss, "loss")
    if grad_loss is None:
        return jnp.sum(array)
    weights = _to_floats(grad_loss, "grad_loss")
    if weights.shape != array.shape:
        raise ArgumentError(
            f"grad_loss has the shape of the loss. Received: a loss of shape {array.shape}, grad_loss of shape "
            f"{weights.shape}."
        )
    # The vector-Jacobian product with grad_loss, as the gradient of a scalar.
    return jnp.sum(array * jax.lax.stop_gradient(weights))


def _to_floats(value: Tensor, argument: str) -> jax.Array:
    if not isinstance(value, (int, float, np.ndarray, np.generic, jax.Array)):
        raise ArgumentError(f"{argument} must be an array of floats. Received: {value!r}.")
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ArgumentError(f"{argument} must be an array of floats. Received: {array.dtype}.")
    return array


def trained_variables(scope: ModelScope, var_list: PyTree) -> list[Any]:
    """Returns the variables to train: `var_list`, or all trainable variables made so far.

    Raises:
        ArgumentError: If there is none, or one is not trainable.
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


def check_variable(variable: object) -> None:
    """Checks that a value is a variable of Keras.

    Raises:
        ArgumentError: If it is not.
    """
    if not isinstance(variable, keras.Variable):
        raise ArgumentError(f"Only variables of Keras can be optimized. Received: {variable!r}.")


def check_pairs(grads_and_vars: Iterable[Pair]) -> list[Pair]:
    """Checks (gradient, variable) pairs and drops those without a gradient.

    Raises:
        ArgumentError: If no pair has a gradient, or an element is no such pair.
    """
    pairs = [_check_pair(p) for p in grads_and_vars]
    if not pairs:
        raise ArgumentError("There must be variables to update. Received: an empty list of gradients and variables.")
    used = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    if not used:
        raise ArgumentError(
            f"At least one variable must have a gradient. Received: None for each of {_names([v for _, v in pairs])}. "
            "Check that the loss depends on them."
        )
    return used


def _check_pair(pair: Any) -> Pair:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ArgumentError(f"grads_and_vars holds (gradient, variable) pairs. Received: {pair!r}.")
    gradient, variable = pair
    check_variable(variable)
    return None if gradient is None else _check_gradient(gradient, variable), variable


def _check_gradient(gradient: Array, variable: Variable) -> jax.Array:
    array = _to_floats(gradient, f"The gradient of {variable.path}")
    if array.shape != tuple(variable.shape):
        raise ArgumentError(
            f"A gradient has its variable's shape. Received: {array.shape} for {variable.path}, whose shape is "
            f"{tuple(variable.shape)}."
        )
    return array.astype(variable.dtype)


def _names(variables: Sequence[Any]) -> str:
    return ", ".join(v.path for v in variables)
