"""Adadelta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep.train._optimizer import Optimizer
from lockstep.train._values import like, number


class AdadeltaOptimizer(Optimizer):
    """Adadelta: steps as large as recent steps were, in relation to recent gradients.

        squares = rho * squares + (1 - rho) * gradient ** 2
        step = gradient * sqrt(steps + epsilon) / sqrt(squares + epsilon)
        steps = rho * steps + (1 - rho) * step ** 2
        variable -= learning_rate * step

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn. The paper's is 1.
        rho: How slowly both means change; as the learning rate.
        epsilon: Keeps roots from zero; as the learning rate.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.

    Source: tf.compat.v1.train.AdadeltaOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._rho = rho
        self._epsilon = epsilon
        self._lr_t: Any = None
        self._rho_t: Any = None
        self._epsilon_t: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "accum", self._name)
            self._zeros_slot(variable, "accum_update", self._name)

    def _prepare(self) -> None:
        self._lr_t = number(self._lr, "learning_rate")
        self._rho_t = number(self._rho, "rho")
        self._epsilon_t = number(self._epsilon, "epsilon")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        rho, epsilon = like(self._rho_t, var), like(self._epsilon_t, var)
        squares, steps = self.get_slot(var, "accum"), self.get_slot(var, "accum_update")
        squares.assign(squares.value * rho + grad * grad * (1 - rho))
        step = jnp.sqrt(steps.value + epsilon) * jax.lax.rsqrt(squares.value + epsilon) * grad
        steps.assign(steps.value * rho + step * step * (1 - rho))
        return var.assign(var.value - step * like(self._lr_t, var))
