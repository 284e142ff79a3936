"""TensorFlow 1's optimizers whose steps take penalties on the weights into account: FOBOS and FTRL-Proximal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from lockstep._types import Array, Variable
from lockstep.estimator.train._arguments import Hyperparameter, check_at_least, plain_number, to_number
from lockstep.estimator.train._optimizers import FormulaOptimizer, check_first_accumulator, tensor_attributes


class ProximalOptimizer(FormulaOptimizer):
    """Base of optimizers with an L1 and an L2 penalty on the weights."""

    NUMBERS = tensor_attributes("learning_rate", "l1_regularization_strength", "l2_regularization_strength")

    def __init__(self, use_locking: bool, name: str, **hyperparameters: Hyperparameter) -> None:
        super().__init__(use_locking, name, **hyperparameters)
        for argument, strength in hyperparameters.items():
            if argument.endswith("_regularization_strength"):
                check_at_least(strength, 0.0, argument)

    def _shrink(self, var: Variable, stepped: Array, rate: Array) -> Array:
        """Moves weights towards zero by `rate * l1`, never beyond it, and scales them by the L2 penalty."""
        l1, l2 = self._number("l1_regularization_strength", var), self._number("l2_regularization_strength", var)
        # The proximal operator of both penalties, in closed form, after the step (Duchi and Singer's FOBOS): the
        # kernels ApplyProximalGradientDescent and ApplyProximalAdagrad. A penalty in the loss leaves no exact zeros.
        return jnp.sign(stepped) * jnp.maximum(jnp.abs(stepped) - rate * l1, 0) / (1 + rate * l2)


class ProximalGradientDescentOptimizer(ProximalOptimizer):
    """Gradient descent with a proximal step for a penalty on the weights (FOBOS).

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        l1_regularization_strength: Strength of the penalty on absolute values; at least 0.
        l2_regularization_strength: Strength of the penalty on squares; at least 0.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.

    Raises:
        ArgumentError: If a strength is negative.

    Source: tf.compat.v1.train.ProximalGradientDescentOptimizer.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter,
        l1_regularization_strength: Hyperparameter = 0.0,
        l2_regularization_strength: Hyperparameter = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
        )

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        rate = self._number("learning_rate", var)
        return var.assign(self._shrink(var, var.value - rate * grad, rate))


class ProximalAdagradOptimizer(ProximalOptimizer):
    """Adagrad with a proximal step for a penalty on the weights (FOBOS).

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        initial_accumulator_value: The first value of the sums of squares; greater than 0.
        l1_regularization_strength: Strength of the penalty on absolute values; at least 0.
        l2_regularization_strength: Strength of the penalty on squares; at least 0.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.

    Raises:
        ArgumentError: If `initial_accumulator_value` is not greater than 0, or a strength is negative.

    Source: tf.compat.v1.train.ProximalAdagradOptimizer.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Hyperparameter = 0.0,
        l2_regularization_strength: Hyperparameter = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
        )
        self._initial_accumulator_value = check_first_accumulator(initial_accumulator_value)

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for variable in var_list:
            self._filled_slot(variable, self._initial_accumulator_value, "accumulator", self._name)

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        squares = self.get_slot(var, "accumulator")
        squares.assign(squares.value + grad * grad)
        # The penalties, too, act at Adagrad's rate of each weight, as in the kernel.
        rate = self._number("learning_rate", var) * jax.lax.rsqrt(squares.value)
        return var.assign(self._shrink(var, var.value - grad * rate, rate))


class FtrlOptimizer(ProximalOptimizer):
    """FTRL-Proximal: weights that the penalties would make tiny are exactly zero.

        squares' = squares + gradient ** 2
        linear += gradient + 2 * l2_shrinkage * variable - (squares' ** -p - squares ** -p) / learning_rate * variable
        variable = (sign(linear) * l1 - linear) / (squares' ** -p / learning_rate + 2 * l2), or 0 if abs(linear) <= l1

    Here p is `learning_rate_power`, and l2 is `l2_regularization_strength + beta / (2 * learning_rate)`.

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        learning_rate_power: Exponent of the learning rate's decay; at most 0, and 0 keeps the rate.
        initial_accumulator_value: The first value of the sums of squares; at least 0.
        l1_regularization_strength: Strength of the penalty on absolute values; at least 0.
        l2_regularization_strength: Strength of the penalty on squares of steps; at least 0.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.
        accum_name: Name of the sums of squares in checkpoints; `None` for `name`.
        linear_name: Name of the linear terms in checkpoints; `None` for `name`.
        l2_shrinkage_regularization_strength: Strength of the penalty on squares of weights; at least 0.
        beta: The paper's beta; `None` for 0.

    Raises:
        ArgumentError: If an argument is out of its range.

    Source: tf.compat.v1.train.FtrlOptimizer.
    """

    NUMBERS: ClassVar[Mapping[str, str]] = {
        **ProximalOptimizer.NUMBERS,
        **tensor_attributes("learning_rate_power", "l2_shrinkage_regularization_strength"),
    }
    _learning_rate_power: float
    _learning_rate_tensor: Array
    _l2_regularization_strength_tensor: Array
    _adjusted_l2_regularization_strength_tensor: Array

    def __init__(
        self,
        learning_rate: Hyperparameter,
        learning_rate_power: Hyperparameter = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Hyperparameter = 0.0,
        l2_regularization_strength: Hyperparameter = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: Hyperparameter = 0.0,
        beta: Hyperparameter | None = None,
    ) -> None:
        # Known before training: `_power` chooses its formula by it, outside of the step.
        power = plain_number(learning_rate_power, "learning_rate_power")
        check_at_least(-power, 0.0, "-learning_rate_power")
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            learning_rate_power=power,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
        )
        self._initial_accumulator_value = plain_number(initial_accumulator_value, "initial_accumulator_value")
        check_at_least(self._initial_accumulator_value, 0.0, "initial_accumulator_value")
        # Not its value yet: it may be a function, which `_prepare` calls in each step.
        self._beta = 0.0 if beta is None else beta
        self._accum_name = accum_name
        self._linear_name = linear_name

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for variable in var_list:
            accum_name, linear_name = self._accum_name or self._name, self._linear_name or self._name
            self._filled_slot(variable, self._initial_accumulator_value, "accum", accum_name)
            self._zeros_slot(variable, "linear", linear_name)

    def _prepare(self) -> None:
        super()._prepare()
        # The paper's beta adds to the divisor of the learning rate, which is the same as more L2. The minimum is
        # TensorFlow's, so that a learning rate of zero does not divide by zero.
        doubled_rate = 2 * jnp.maximum(self._learning_rate_tensor, 1e-36)
        beta = to_number(self._beta, "beta")
        self._adjusted_l2_regularization_strength_tensor = self._l2_regularization_strength_tensor + beta / doubled_rate

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        rate, l1 = self._number("learning_rate", var), self._number("l1_regularization_strength", var)
        l2 = jnp.asarray(self._adjusted_l2_regularization_strength_tensor).astype(var.dtype)
        shrinkage = self._number("l2_shrinkage_regularization_strength", var)
        squares, linear = self.get_slot(var, "accum"), self.get_slot(var, "linear")
        before, after = self._power(squares.value), self._power(squares.value + grad * grad)
        # Shrinkage enters the linear term only, not the squares, as in the kernel ApplyFtrlV2: it slows no rate.
        linear.assign(linear.value + grad + 2 * shrinkage * var.value - (after - before) / rate * var.value)
        squares.assign(squares.value + grad * grad)
        minimum = (l1 * jnp.sign(linear.value) - linear.value) / (after / rate + 2 * l2)
        return var.assign(jnp.where(jnp.abs(linear.value) > l1, minimum, 0))

    def _power(self, squares: Array) -> Array:
        # TensorFlow's kernel takes a root for the default, which rounds better than the power.
        if self._learning_rate_power == -0.5:
            return jnp.sqrt(squares)
        return squares ** -self._number("learning_rate_power", squares)
