"""RMSProp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep.train._optimizer import Optimizer
from lockstep.train._values import like, number


class RMSPropOptimizer(Optimizer):
    """RMSProp, with the epsilon inside of the root, and squares that start at 1.

        squares += (1 - decay) * (gradient ** 2 - squares)
        moving = momentum * moving + learning_rate * gradient / sqrt(squares + epsilon)
        variable -= moving

    Centered, the root is that of the variance: of `squares - mean ** 2 + epsilon`.

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        decay: How slowly means change; as the learning rate.
        momentum: As the learning rate.
        epsilon: Keeps the divisor from zero; as the learning rate.
        use_locking: Updates never overlap; either value is kept.
        centered: Whether the mean of the gradients is taken off.
        name: Of the optimizer.

    Source: tf.compat.v1.train.RMSPropOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._decay = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered
        self._learning_rate_tensor: Any = None
        self._decay_tensor: Any = None
        self._momentum_tensor: Any = None
        self._epsilon_tensor: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            self._filled_slot(variable, 1.0, "rms", self._name)
            if self._centered:
                self._zeros_slot(variable, "mg", self._name)
            self._zeros_slot(variable, "momentum", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = number(self._learning_rate, "learning_rate")
        self._decay_tensor = number(self._decay, "decay")
        self._momentum_tensor = number(self._momentum, "momentum")
        self._epsilon_tensor = number(self._epsilon, "epsilon")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        decay, momentum = like(self._decay_tensor, var), like(self._momentum_tensor, var)
        squares, moving = self.get_slot(var, "rms"), self.get_slot(var, "momentum")
        squares.assign(squares.value + (grad * grad - squares.value) * (1 - decay))
        divisor = squares.value - self._squared_mean(grad, var, decay) + like(self._epsilon_tensor, var)
        rate = like(self._learning_rate_tensor, var)
        moving.assign(moving.value * momentum + rate * grad * jax.lax.rsqrt(divisor))
        return var.assign(var.value - moving.value)

    def _squared_mean(self, grad: Any, var: Any, decay: Any) -> Any:
        """Brings the mean of the gradients up to date, and returns its square; zero if it is not taken off."""
        if not self._centered:
            return jnp.zeros((), var.dtype)
        mean = self.get_slot(var, "mg")
        mean.assign(mean.value + (grad - mean.value) * (1 - decay))
        return mean.value * mean.value
