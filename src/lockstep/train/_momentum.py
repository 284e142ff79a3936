"""Gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep.train._optimizer import Optimizer
from lockstep.train._values import like, number


class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum: `momentum = m * momentum + gradient; variable -= learning_rate * momentum`.

    The learning rate does not enter the accumulated momentum; in Keras' SGD it does.

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        momentum: The same.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.
        use_nesterov: Whether the step looks ahead: `variable -= learning_rate * (gradient + m * momentum)`.

    Source: tf.compat.v1.train.MomentumOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._use_nesterov = use_nesterov
        self._learning_rate_tensor: Any = None
        self._momentum_tensor: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "momentum", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = number(self._learning_rate, "learning_rate")
        self._momentum_tensor = number(self._momentum, "momentum")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        rate, momentum = like(self._learning_rate_tensor, var), like(self._momentum_tensor, var)
        moving = self.get_slot(var, "momentum")
        moving.assign(moving.value * momentum + grad)
        if self._use_nesterov:
            return var.assign(var.value - (grad * rate + moving.value * momentum * rate))
        return var.assign(var.value - moving.value * rate)
