"""Rules of optimizers that Keras 2 has otherwise: Nadam's schedule, and averages of weights (`use_ema`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import keras
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.optimizers.base_optimizer import BaseOptimizer

from lockstep._types import Optimizer, Tensor, Variable
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow.config._settings import functions_run_eagerly
from lockstep.compat.tensorflow.keras._patches._patch import replaces

# Set while an update of plain Python is compiled, which TensorFlow carries out operation by operation.
EAGER = "_lockstep_is_eager"


@replaces(keras.optimizers.Nadam, "build")
def _build_nadam(original: Callable[..., None], self: Optimizer, var_list: Sequence[Variable]) -> None:
    if self.built:
        return
    # Keras' own makes the product in a way that a replica's function, which is traced, refuses.
    super(keras.optimizers.Nadam, self).build(var_list)
    self._momentums, self._velocities = self.add_optimizer_variables(var_list, ["momentum", "velocity"])
    dtype = var_list[0].dtype if var_list else keras.backend.floatx()
    self._u_product = self.add_variable((), initializer="ones", dtype=dtype, name="u_product")


@replaces(keras.optimizers.Nadam, "_backend_update_step")
def _update_nadam(
    original: Callable[..., None],
    self: Optimizer,
    grads: Sequence[Tensor],
    trainable_variables: Sequence[Variable],
    learning_rate: Tensor,
) -> None:
    """Updates weights, and multiplies the schedule's product as a function of TensorFlow 2.15 does.

    Keras 2 counts in Python how often it has multiplied the product, so as to do so once a step. In a function, which
    is traced and traced again, the count is a number of the weight: each weight multiplies in every step but one.
    """
    if _is_eager(self):
        original(self, grads, trainable_variables, learning_rate)
        return
    dtype = self._u_product.dtype
    step = jnp.asarray(self.iterations.value + 1, dtype)
    factor = jnp.asarray(self.beta_1 * (1.0 - 0.5 * jnp.asarray(0.96, dtype) ** step), dtype)
    for place, (gradient, variable) in enumerate(zip(grads, trainable_variables, strict=True)):
        is_known = self.iterations.value + 1 == place + len(trainable_variables)
        before = self._u_product.value
        self.assign(self._u_product, jnp.where(is_known, before, before * factor))
        self.update_step(gradient, variable, learning_rate)


def _is_eager(optimizer: Optimizer) -> bool:
    if EAGER in vars(optimizer) or functions_run_eagerly():
        return True
    return get_stateless_scope() is None and not dispatch.is_traced()


# Of the class that all optimizers have in common: its method is that of Keras' backend.
@replaces(keras.optimizers.Optimizer, "_backend_apply_gradients")
def _apply_with_averages(
    original: Callable[..., None], self: Optimizer, grads: Sequence[Tensor], trainable_variables: Sequence[Variable]
) -> None:
    if self.use_ema:
        # Keras 3's averages begin with the weights after the first step, Keras 2's with those before it. Not when they
        # are made: parameter servers begin all that belongs to a weight with one number.
        is_first = self.iterations.value == 0
        for variable, average in _averaged(self, self._trainable_variables):
            average.assign(jnp.where(is_first, variable.value, average.value))
    original(self, grads, trainable_variables)


@replaces(BaseOptimizer, "_update_model_variables_moving_average")
def _average(original: Callable[..., None], self: Optimizer, trainable_variables: Sequence[Variable]) -> None:
    if not self.use_ema:
        return
    for variable, average in _averaged(self, trainable_variables):
        average.assign(self.ema_momentum * average + (1 - self.ema_momentum) * variable)


def _averaged(optimizer: Any, variables: Sequence[Variable]) -> list[tuple[Any, Any]]:
    pairs = zip(variables, optimizer._model_variables_moving_average, strict=True)
    return [(variable, average) for variable, average in pairs if average is not None]
