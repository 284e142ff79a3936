"""Steps against the gradient, plain and with a penalty on the weights."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lockstep.train._optimizer import Optimizer
from lockstep.train._values import at_least, like, number


class GradientDescentOptimizer(Optimizer):
    """Gradient descent: `variable -= learning_rate * gradient`.

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.

    Source: tf.compat.v1.train.GradientDescentOptimizer.
    """

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._learning_rate_tensor: Any = None

    def _prepare(self) -> None:
        self._learning_rate_tensor = number(self._learning_rate, "learning_rate")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return var.assign(var.value - like(self._learning_rate_tensor, var) * grad)


class ProximalGradientDescentOptimizer(Optimizer):
    """Gradient descent whose steps end where a penalty on the weights is taken into account (FOBOS).

    Args:
        learning_rate: A number, a function that returns one, or one computed in the model_fn.
        l1_regularization_strength: Of the penalty on absolute values; at least 0.
        l2_regularization_strength: Of the penalty on squares; at least 0.
        use_locking: Updates never overlap; either value is kept.
        name: Of the optimizer.

    Raises:
        ArgumentError: If a strength is negative.

    Source: tf.compat.v1.train.ProximalGradientDescentOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(use_locking, name)
        at_least(l1_regularization_strength, 0.0, "l1_regularization_strength")
        at_least(l2_regularization_strength, 0.0, "l2_regularization_strength")
        self._learning_rate = learning_rate
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._learning_rate_tensor: Any = None
        self._l1_regularization_strength_tensor: Any = None
        self._l2_regularization_strength_tensor: Any = None

    def _prepare(self) -> None:
        self._learning_rate_tensor = number(self._learning_rate, "learning_rate")
        self._l1_regularization_strength_tensor = number(self._l1_regularization_strength, "l1_regularization_strength")
        self._l2_regularization_strength_tensor = number(self._l2_regularization_strength, "l2_regularization_strength")

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        rate = like(self._learning_rate_tensor, var)
        l1 = like(self._l1_regularization_strength_tensor, var)
        l2 = like(self._l2_regularization_strength_tensor, var)
        return var.assign(shrunk(var.value - rate * grad, rate, l1, l2))


def shrunk(moved: Any, rate: Any, l1: Any, l2: Any) -> Any:
    """Returns where a step ends with a penalty: nearer to zero by `rate * l1`, never beyond it, and scaled by `l2`."""
    return jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - rate * l1, 0) / (1 + rate * l2)
