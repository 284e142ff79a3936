"""Steps divided by the root of all squared gradients so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from lockstep.train._gradient_descent import shrunk
from lockstep.train._optimizer import Optimizer
from lockstep.train._values import at_least, like, number, plain_number


class AdagradOptimizer(Optimizer):
    """Adagrad: `sum += gradient ** 2; variable -= learning_rate * gradient / sqrt(sum)`.

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        initial_accumulator_value: Where the sums start; greater than 0.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.

    Raises:
        ArgumentError: If `initial_accumulator_value` is not greater than 0.

    Source: tf.compat.v1.train.AdagradOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = _start(initial_accumulator_value)
        self._learning_rate_tensor: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            self._filled_slot(variable, self._initial_accumulator_value, "accumulator", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = number(self._learning_rate, "learning_rate")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        squares = self.get_slot(var, "accumulator")
        squares.assign(squares.value + grad * grad)
        rate = like(self._learning_rate_tensor, var)
        return var.assign(var.value - grad * rate * jax.lax.rsqrt(squares.value))


class ProximalAdagradOptimizer(Optimizer):
    """Adagrad whose steps end where a penalty on the weights is taken into account (FOBOS).

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        initial_accumulator_value: Where the sums of squares start; greater than 0.
        l1_regularization_strength: Of the penalty on absolute values; at least 0.
        l2_regularization_strength: Of the penalty on squares; at least 0.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.

    Raises:
        ArgumentError: If `initial_accumulator_value` is not greater than 0, or a strength is negative.

    Source: tf.compat.v1.train.ProximalAdagradOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        super().__init__(use_locking, name)
        at_least(l1_regularization_strength, 0.0, "l1_regularization_strength")
        at_least(l2_regularization_strength, 0.0, "l2_regularization_strength")
        self._learning_rate = learning_rate
        self._initial_accumulator_value = _start(initial_accumulator_value)
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._learning_rate_tensor: Any = None
        self._l1_regularization_strength_tensor: Any = None
        self._l2_regularization_strength_tensor: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            self._filled_slot(variable, self._initial_accumulator_value, "accumulator", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = number(self._learning_rate, "learning_rate")
        self._l1_regularization_strength_tensor = number(self._l1_regularization_strength, "l1_regularization_strength")
        self._l2_regularization_strength_tensor = number(self._l2_regularization_strength, "l2_regularization_strength")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        squares = self.get_slot(var, "accumulator")
        squares.assign(squares.value + grad * grad)
        rate = like(self._learning_rate_tensor, var) * jax.lax.rsqrt(squares.value)
        l1 = like(self._l1_regularization_strength_tensor, var)
        l2 = like(self._l2_regularization_strength_tensor, var)
        return var.assign(shrunk(var.value - grad * rate, rate, l1, l2))


def _start(value: Any) -> float:
    start = plain_number(value, "initial_accumulator_value")
    at_least(start, 0.0, "initial_accumulator_value", strictly=True)
    return start
