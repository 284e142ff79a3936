"""Follow the regularized leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lockstep.train._optimizer import Optimizer
from lockstep.train._values import at_least, like, number, plain_number

# As TensorFlow has it, so that a learning rate of zero does not divide by zero.
_LEAST_RATE = 1e-36


class FtrlOptimizer(Optimizer):
    """FTRL-Proximal: weights that the penalties would make tiny are exactly zero.

        squares' = squares + gradient ** 2
        linear += gradient + 2 * l2_shrinkage * variable - (squares' ** -p - squares ** -p) / learning_rate * variable
        variable = (sign(linear) * l1 - linear) / (squares' ** -p / learning_rate + 2 * l2), or 0 if abs(linear) <= l1

    Here p is `learning_rate_power`, and l2 is `l2_regularization_strength + beta / (2 * learning_rate)`.

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        learning_rate_power: How the learning rate falls; at most 0, and 0 keeps it.
        initial_accumulator_value: Where the sums of squares start; at least 0.
        l1_regularization_strength: Of the penalty on absolute values; at least 0.
        l2_regularization_strength: Of the penalty on squares of steps; at least 0.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.
        accum_name: What the sums of squares are called in checkpoints; `None` for `name`.
        linear_name: What the linear terms are called in checkpoints; `None` for `name`.
        l2_shrinkage_regularization_strength: Of the penalty on squares of weights; at least 0.
        beta: The paper's beta; `None` for 0.

    Raises:
        ArgumentError: If an argument is out of its range.

    Source: tf.compat.v1.train.FtrlOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: Any = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: Any = 0.0,
        beta: Any = None,
    ) -> None:
        super().__init__(use_locking, name)
        at_least(l1_regularization_strength, 0.0, "l1_regularization_strength")
        at_least(l2_regularization_strength, 0.0, "l2_regularization_strength")
        at_least(l2_shrinkage_regularization_strength, 0.0, "l2_shrinkage_regularization_strength")
        self._learning_rate = learning_rate
        self._learning_rate_power = plain_number(learning_rate_power, "learning_rate_power")
        at_least(-self._learning_rate_power, 0.0, "-learning_rate_power")
        self._initial_accumulator_value = plain_number(initial_accumulator_value, "initial_accumulator_value")
        at_least(self._initial_accumulator_value, 0.0, "initial_accumulator_value")
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._beta = 0.0 if beta is None else beta
        self._accum_name = accum_name
        self._linear_name = linear_name
        self._learning_rate_tensor: Any = None
        self._learning_rate_power_tensor: Any = None
        self._l1_regularization_strength_tensor: Any = None
        self._adjusted_l2_regularization_strength_tensor: Any = None
        self._l2_shrinkage_regularization_strength_tensor: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            name = self._accum_name or self._name
            self._filled_slot(variable, self._initial_accumulator_value, "accum", name)
            self._zeros_slot(variable, "linear", self._linear_name or self._name)

    def _prepare(self) -> None:
        rate = number(self._learning_rate, "learning_rate")
        beta = number(self._beta, "beta")
        l2 = number(self._l2_regularization_strength, "l2_regularization_strength")
        self._learning_rate_tensor = rate
        self._learning_rate_power_tensor = number(self._learning_rate_power, "learning_rate_power")
        self._l1_regularization_strength_tensor = number(self._l1_regularization_strength, "l1_regularization_strength")
        self._adjusted_l2_regularization_strength_tensor = l2 + beta / (2 * jnp.maximum(rate, _LEAST_RATE))
        self._l2_shrinkage_regularization_strength_tensor = number(
            self._l2_shrinkage_regularization_strength, "l2_shrinkage_regularization_strength"
        )

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        rate = like(self._learning_rate_tensor, var)
        l1 = like(self._l1_regularization_strength_tensor, var)
        l2 = like(self._adjusted_l2_regularization_strength_tensor, var)
        shrinkage = like(self._l2_shrinkage_regularization_strength_tensor, var)
        squares, linear = self.get_slot(var, "accum"), self.get_slot(var, "linear")
        before, after = self._power(squares.value), self._power(squares.value + grad * grad)
        linear.assign(linear.value + grad + 2 * shrinkage * var.value - (after - before) / rate * var.value)
        squares.assign(squares.value + grad * grad)
        moved = (l1 * jnp.sign(linear.value) - linear.value) / (after / rate + 2 * l2)
        return var.assign(jnp.where(jnp.abs(linear.value) > l1, moved, 0))

    def _power(self, squares: Any) -> Any:
        if self._learning_rate_power == -0.5:
            return jnp.sqrt(squares)
        return squares ** -like(self._learning_rate_power_tensor, squares)
