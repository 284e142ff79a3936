"""Checks of arguments of optimizers and schedules: losses, variables, gradients, hyperparameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Array, PyTree, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import ModelScope
from lockstep.estimator.train._global_step import get_global_step

Pair = tuple[Any, Any]
Hyperparameter: TypeAlias = Any
"""A number, an array of no dimensions, a variable, a function of no arguments that returns one, or a Keras schedule."""


def scalar_loss(loss: Tensor, grad_loss: Tensor | None = None) -> Any:
    """Reduces a loss to the scalar that is differentiated; `grad_loss` weights its elements."""
    loss = loss() if callable(loss) and not isinstance(loss, keras.Variable) else loss
    array = _to_floats(loss.value if isinstance(loss, keras.Variable) else loss, "loss")
    # The sum, not the mean: tf.gradients adds up the gradients of a loss that has several elements.
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
    """Returns the variables to train: `var_list`, or all trainable variables made so far."""
    variables = scope.trainable_variables() if var_list is None else jax.tree.leaves(var_list)
    for variable in variables:
        _check_variable(variable)
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


def _check_variable(variable: object) -> None:
    if not isinstance(variable, keras.Variable):
        raise ArgumentError(f"Only variables of Keras can be optimized. Received: {variable!r}.")


def check_pairs(grads_and_vars: Iterable[Pair]) -> list[Pair]:
    """Checks (gradient, variable) pairs and drops those without a gradient."""
    pairs = [_check_pair(pair) for pair in grads_and_vars]
    if not pairs:
        raise ArgumentError("There must be variables to update. Received: an empty list of gradients and variables.")
    # Dropped ones keep their slots as they are, too: TensorFlow updates nothing of a variable without a gradient.
    used = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    if not used:
        raise no_gradient([variable for _, variable in pairs])
    return used


def _check_pair(pair: Any) -> Pair:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ArgumentError(f"grads_and_vars holds (gradient, variable) pairs. Received: {pair!r}.")
    gradient, variable = pair
    _check_variable(variable)
    if gradient is None:
        return None, variable
    array = _to_floats(gradient, f"The gradient of {variable.path}")
    if array.shape != tuple(variable.shape):
        raise ArgumentError(
            f"A gradient has its variable's shape. Received: {array.shape} for {variable.path}, whose shape is "
            f"{tuple(variable.shape)}."
        )
    return array.astype(variable.dtype), variable


def no_gradient(variables: Iterable[Variable]) -> ArgumentError:
    """Returns the error for variables none of which has a gradient."""
    return ArgumentError(
        f"At least one variable must have a gradient. Received: None for each of {', '.join(v.path for v in variables)}"
        ". Check that the loss depends on them."
    )


def to_number(value: Hyperparameter, argument: str) -> Array:
    """Converts a hyperparameter to an array of no dimensions; `argument` is its name, for the error.

    A number of Python becomes float32, as in TensorFlow; a value that has a dtype keeps it.
    """
    # Before `callable`: a schedule is callable too, but takes the step.
    if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
        value = value(get_global_step())
    value = value() if callable(value) and not isinstance(value, keras.Variable) else value
    if isinstance(value, keras.Variable):
        value = value.value
    # numpy's float64 is an instance of Python's float, and would lose its dtype here.
    array = np.float32(value) if isinstance(value, (int, float)) and not isinstance(value, np.generic) else value
    if isinstance(value, (bool, str)) or value is None or not hasattr(array, "dtype") or np.ndim(array):
        raise ArgumentError(
            f"{argument} must be a number, an array of no dimensions, or a function of no arguments that returns one. "
            f"Received: {value!r}."
        )
    return array


def plain_number(value: Hyperparameter, argument: str) -> float:
    """Converts a hyperparameter that must be known before training starts to a number."""
    value = value() if callable(value) else value
    if isinstance(value, (bool, str, Tracer)) or value is None or np.ndim(value):
        raise ArgumentError(
            f"{argument} sets the first value of a variable, so it must be a plain number. Received: {value!r}. Pass a "
            "number that does not depend on features, labels or the global step."
        )
    return float(value)


def check_at_least(value: Hyperparameter, least: float, argument: str, *, strictly: bool = False) -> None:
    """Checks the range of a hyperparameter, if its value is known yet."""
    if isinstance(value, Tracer) or callable(value):
        return
    if value < least or (strictly and value == least):
        raise ArgumentError(
            f"{argument} must be {'greater than' if strictly else 'at least'} {least}. Received: {value}."
        )
