"""TensorFlow 1's optimizers: their formulas, names of slots and starting values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from lockstep._types import Array, Variable
from lockstep.estimator.train._arguments import Hyperparameter, check_at_least, plain_number, to_number
from lockstep.estimator.train._optimizer import Optimizer


def tensor_attributes(*arguments: str) -> dict[str, str]:
    """Returns the attributes of `FormulaOptimizer.NUMBERS`, named as most optimizers of TensorFlow name them."""
    return {argument: f"_{argument}_tensor" for argument in arguments}


class FormulaOptimizer(Optimizer):
    """Base of optimizers whose hyperparameters are numbers that may change from step to step.

    Attributes:
        NUMBERS: The attribute that gets this step's value, by argument. Without its suffix it is the attribute of the
            argument itself. Both names are TensorFlow's, because subclasses in user programs read them.
        SLOTS: Names of the slots that start with zeros, as TensorFlow's checkpoints and `get_slot` know them.
    """

    NUMBERS: ClassVar[Mapping[str, str]] = {}
    SLOTS: ClassVar[Sequence[str]] = ()

    def __init__(self, use_locking: bool, name: str, **hyperparameters: Hyperparameter) -> None:
        super().__init__(use_locking, name)
        for argument, value in hyperparameters.items():
            setattr(self, _without_suffix(self.NUMBERS[argument]), value)

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for variable in var_list:
            for slot in self.SLOTS:
                self._zeros_slot(variable, slot, self._name)

    def _prepare(self) -> None:
        # Each becomes an attribute of its own, since the step program finds traced values in attributes.
        for argument, attribute in self.NUMBERS.items():
            setattr(self, attribute, to_number(getattr(self, _without_suffix(attribute)), argument))

    def _number(self, argument: str, like: Variable) -> Array:
        """Returns a hyperparameter's value in this step, in the dtype of a variable."""
        # TensorFlow's kernels take all scalars in the variable's dtype: a float32 rate would widen float16 weights.
        return jnp.asarray(getattr(self, self.NUMBERS[argument])).astype(like.dtype)


def _without_suffix(attribute: str) -> str:
    # tf.compat.v1.train.AdamOptimizer keeps `learning_rate` in `_lr` and its tensor in `_lr_t`.
    return attribute.removesuffix("_tensor").removesuffix("_t")


class GradientDescentOptimizer(FormulaOptimizer):
    """Gradient descent: `variable -= learning_rate * gradient`.

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.

    Source: tf.compat.v1.train.GradientDescentOptimizer.
    """

    NUMBERS = tensor_attributes("learning_rate")

    def __init__(self, learning_rate: Hyperparameter, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name, learning_rate=learning_rate)

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        return var.assign(var.value - self._number("learning_rate", var) * grad)


class MomentumOptimizer(FormulaOptimizer):
    """Gradient descent with momentum: `momentum = m * momentum + gradient; variable -= learning_rate * momentum`.

    The learning rate does not enter the accumulated momentum; in Keras' SGD it does.

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        momentum: As `learning_rate`.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.
        use_nesterov: Whether the step looks ahead: `variable -= learning_rate * (gradient + m * momentum)`.

    Source: tf.compat.v1.train.MomentumOptimizer.
    """

    NUMBERS = tensor_attributes("learning_rate", "momentum")
    SLOTS = ("momentum",)

    def __init__(
        self,
        learning_rate: Hyperparameter,
        momentum: Hyperparameter,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name, learning_rate=learning_rate, momentum=momentum)
        self._use_nesterov = use_nesterov

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        rate, momentum = self._number("learning_rate", var), self._number("momentum", var)
        accumulator = self.get_slot(var, "momentum")
        # Without the rate, as the kernel ApplyMomentum: a decayed rate slows old gradients too. keras.optimizers.SGD
        # keeps `momentum * old - rate * gradient`, where they move on at the rate of their own step.
        accumulator.assign(accumulator.value * momentum + grad)
        if self._use_nesterov:
            # TensorFlow's kernel rounds in this order; one factor `rate` outside gives other last digits.
            return var.assign(var.value - (grad * rate + accumulator.value * momentum * rate))
        return var.assign(var.value - accumulator.value * rate)


class AdagradOptimizer(FormulaOptimizer):
    """Adagrad: `sum += gradient ** 2; variable -= learning_rate * gradient / sqrt(sum)`.

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        initial_accumulator_value: The first value of the sums; greater than 0.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.

    Raises:
        ArgumentError: If `initial_accumulator_value` is not greater than 0.

    Source: tf.compat.v1.train.AdagradOptimizer.
    """

    NUMBERS = tensor_attributes("learning_rate")

    def __init__(
        self,
        learning_rate: Hyperparameter,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        super().__init__(use_locking, name, learning_rate=learning_rate)
        self._initial_accumulator_value = check_first_accumulator(initial_accumulator_value)

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for variable in var_list:
            self._filled_slot(variable, self._initial_accumulator_value, "accumulator", self._name)

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        squares = self.get_slot(var, "accumulator")
        squares.assign(squares.value + grad * grad)
        # No epsilon, as the kernel ApplyAdagrad: sums start above 0. keras.optimizers.Adagrad adds 1e-7 to the sums.
        return var.assign(var.value - grad * self._number("learning_rate", var) * jax.lax.rsqrt(squares.value))


class AdadeltaOptimizer(FormulaOptimizer):
    """Adadelta: steps in proportion to recent steps, divided by recent gradients.

        squares = rho * squares + (1 - rho) * gradient ** 2
        step = gradient * sqrt(steps + epsilon) / sqrt(squares + epsilon)
        steps = rho * steps + (1 - rho) * step ** 2
        variable -= learning_rate * step

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn. The paper's is 1.
        rho: Decay of both means; as `learning_rate`.
        epsilon: Keeps roots from zero; as `learning_rate`.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.

    Source: tf.compat.v1.train.AdadeltaOptimizer.
    """

    NUMBERS: ClassVar[Mapping[str, str]] = {"learning_rate": "_lr_t", "rho": "_rho_t", "epsilon": "_epsilon_t"}
    SLOTS = ("accum", "accum_update")

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        rho: Hyperparameter = 0.95,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name, learning_rate=learning_rate, rho=rho, epsilon=epsilon)

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        rho, epsilon = self._number("rho", var), self._number("epsilon", var)
        squares, steps = self.get_slot(var, "accum"), self.get_slot(var, "accum_update")
        # In the kernel ApplyAdadelta's order: a step reads this step's squares, but the steps before itself.
        squares.assign(squares.value * rho + grad * grad * (1 - rho))
        step = jnp.sqrt(steps.value + epsilon) * jax.lax.rsqrt(squares.value + epsilon) * grad
        steps.assign(steps.value * rho + step * step * (1 - rho))
        return var.assign(var.value - step * self._number("learning_rate", var))


class RMSPropOptimizer(FormulaOptimizer):
    """RMSProp, with the epsilon inside of the root, and squares that start at 1.

        squares += (1 - decay) * (gradient ** 2 - squares)
        moving = momentum * moving + learning_rate * gradient / sqrt(squares + epsilon)
        variable -= moving

    Centered, the root is that of the variance: of `squares - mean ** 2 + epsilon`.

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        decay: Decay of the means; as `learning_rate`.
        momentum: As `learning_rate`.
        epsilon: Keeps the divisor from zero; as `learning_rate`.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        centered: Whether to subtract the squared mean of the gradients.
        name: Name of the optimizer.

    Source: tf.compat.v1.train.RMSPropOptimizer.
    """

    NUMBERS = tensor_attributes("learning_rate", "decay", "momentum", "epsilon")

    def __init__(
        self,
        learning_rate: Hyperparameter,
        decay: Hyperparameter = 0.9,
        momentum: Hyperparameter = 0.0,
        epsilon: Hyperparameter = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(
            use_locking, name, learning_rate=learning_rate, decay=decay, momentum=momentum, epsilon=epsilon
        )
        self._centered = centered

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for variable in var_list:
            # Ones, as tf.compat.v1.train.RMSPropOptimizer, where Keras has zeros: the first steps are smaller.
            self._filled_slot(variable, 1.0, "rms", self._name)
            if self._centered:
                self._zeros_slot(variable, "mg", self._name)
            self._zeros_slot(variable, "momentum", self._name)

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        rate, decay = self._number("learning_rate", var), self._number("decay", var)
        squares, moving = self.get_slot(var, "rms"), self.get_slot(var, "momentum")
        # `x + (new - x) * (1 - decay)`, not `x * decay + new * (1 - decay)`: the kernel ApplyRMSProp rounds so.
        squares.assign(squares.value + (grad * grad - squares.value) * (1 - decay))
        variance = squares.value
        if self._centered:
            mean = self.get_slot(var, "mg")
            mean.assign(mean.value + (grad - mean.value) * (1 - decay))
            variance = variance - mean.value * mean.value
        divisor = variance + self._number("epsilon", var)
        moving.assign(moving.value * self._number("momentum", var) + rate * grad * jax.lax.rsqrt(divisor))
        return var.assign(var.value - moving.value)


class AdamOptimizer(FormulaOptimizer):
    """Adam, with the epsilon outside of the bias correction.

        rate = learning_rate * sqrt(1 - beta2 ** step) / (1 - beta1 ** step)
        m += (1 - beta1) * (gradient - m)
        v += (1 - beta2) * (gradient ** 2 - v)
        variable -= rate * m / (sqrt(v) + epsilon)

    Args:
        learning_rate: A number, a function that returns one, or a value computed in the model_fn.
        beta1: Decay of the mean of the gradients; a number, or a function that returns one.
        beta2: Decay of the mean of their squares; as `beta1`.
        epsilon: Keeps the divisor from zero; as `learning_rate`.
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer.

    Source: tf.compat.v1.train.AdamOptimizer.
    """

    NUMBERS: ClassVar[Mapping[str, str]] = {
        "learning_rate": "_lr_t",
        "beta1": "_beta1_t",
        "beta2": "_beta2_t",
        "epsilon": "_epsilon_t",
    }
    SLOTS = ("m", "v")
    _beta1: Hyperparameter
    _beta2: Hyperparameter

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)

    def _get_beta_accumulators(self) -> tuple[Variable, Variable]:
        """Returns the variables that hold the powers of both betas."""
        return self._get_non_slot_variable("beta1_power"), self._get_non_slot_variable("beta2_power")

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        # Powers are variables rather than functions of the global step, which a program may count in its own way.
        self._create_non_slot_variable(plain_number(self._beta1, "beta1"), "beta1_power")
        self._create_non_slot_variable(plain_number(self._beta2, "beta2"), "beta2_power")
        super()._create_slots(var_list)

    def _apply_dense(self, grad: Array, var: Variable) -> Array:
        beta1, beta2, epsilon = (self._number(argument, var) for argument in ("beta1", "beta2", "epsilon"))
        power1, power2 = (power.value.astype(var.dtype) for power in self._get_beta_accumulators())
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m.assign(m.value + (grad - m.value) * (1 - beta1))
        v.assign(v.value + (grad * grad - v.value) * (1 - beta2))
        # The paper's "epsilon hat": TensorFlow corrects the rate, so epsilon is not divided by sqrt(1 - power2).
        corrected = self._number("learning_rate", var) * jnp.sqrt(1 - power2) / (1 - power1)
        return var.assign(var.value - m.value * corrected / (jnp.sqrt(v.value) + epsilon))

    def _finish(self, update_ops: list[Array], name_scope: str) -> None:
        # After all variables: each of their updates reads the powers of this step.
        for power, beta in zip(self._get_beta_accumulators(), ("beta1", "beta2"), strict=True):
            power.assign(power.value * self._number(beta, power))


def check_first_accumulator(value: float) -> float:
    """Returns the first value of accumulated squares, which must be greater than 0."""
    start = plain_number(value, "initial_accumulator_value")
    check_at_least(start, 0.0, "initial_accumulator_value", strictly=True)
    return start
