"""Adam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lockstep.train._optimizer import Optimizer
from lockstep.train._values import like, number, plain_number


class AdamOptimizer(Optimizer):
    """Adam, with the epsilon outside of the bias correction.

        rate = learning_rate * sqrt(1 - beta2 ** step) / (1 - beta1 ** step)
        m += (1 - beta1) * (gradient - m)
        v += (1 - beta2) * (gradient ** 2 - v)
        variable -= rate * m / (sqrt(v) + epsilon)

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        beta1: How slowly the mean of the gradients changes; a number, or a function that returns one.
        beta2: How slowly the mean of their squares changes; the same.
        epsilon: Keeps the divisor from zero; as the learning rate.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.

    Source: tf.compat.v1.train.AdamOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon
        self._lr_t: Any = None
        self._beta1_t: Any = None
        self._beta2_t: Any = None
        self._epsilon_t: Any = None

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        """Returns the variables that hold the powers of both betas."""
        return self._get_non_slot_variable("beta1_power"), self._get_non_slot_variable("beta2_power")

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        self._create_non_slot_variable(plain_number(self._beta1, "beta1"), "beta1_power")
        self._create_non_slot_variable(plain_number(self._beta2, "beta2"), "beta2_power")
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)
            self._zeros_slot(variable, "v", self._name)

    def _prepare(self) -> None:
        self._lr_t = number(self._lr, "learning_rate")
        self._beta1_t = number(self._beta1, "beta1")
        self._beta2_t = number(self._beta2, "beta2")
        self._epsilon_t = number(self._epsilon, "epsilon")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        beta1, beta2, rate = like(self._beta1_t, var), like(self._beta2_t, var), like(self._lr_t, var)
        power1, power2 = (like(p.value, var) for p in self._get_beta_accumulators())
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m.assign(m.value + (grad - m.value) * (1 - beta1))
        v.assign(v.value + (grad * grad - v.value) * (1 - beta2))
        corrected = rate * jnp.sqrt(1 - power2) / (1 - power1)
        return var.assign(var.value - m.value * corrected / (jnp.sqrt(v.value) + like(self._epsilon_t, var)))

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        for power, beta in zip(self._get_beta_accumulators(), (self._beta1_t, self._beta2_t), strict=True):
            power.assign(power.value * like(beta, power))
