"""`tf.keras.optimizers.legacy`: the optimizers of `tf.keras.optimizers`, and Nadam with the schedule of its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import keras

from lockstep._types import Tensor, Variable
from lockstep.compat.tensorflow._types import LearningRate
from lockstep.compat.tensorflow.keras import _optimizers
from lockstep.compat.tensorflow.keras._alias import alias
from lockstep.compat.tensorflow.keras._optimizers import (
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    Lion,
    Optimizer,
    RMSprop,
)
from lockstep.errors import ArgumentError

__all__ = ["SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "Optimizer"]
__all__ += ["RMSprop"]


@keras.saving.register_keras_serializable("lockstep", "LegacyNadam")
class _Nadam(keras.optimizers.Nadam):
    """Updates weights by Nadam, whose momentum grows with `0.96 ** (schedule_decay * step)`.

    Args:
        schedule_decay: How fast the momentum grows towards `beta_1`.

    Source: tf.keras.optimizers.legacy.Nadam.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "Nadam",
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)
        self.schedule_decay = schedule_decay

    def _momentum_at(self, step: Any, dtype: str) -> Any:
        return self.beta_1 * (1.0 - 0.5 * jnp.asarray(0.96, dtype) ** (jnp.asarray(step, dtype) * self.schedule_decay))

    def _backend_update_step(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[Variable], learning_rate: Tensor
    ) -> None:
        product: Any = self._u_product
        product.assign(product.value * self._momentum_at(self._step(), product.dtype))
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            self.update_step(gradient, variable, learning_rate)

    def _step(self) -> Any:
        count: Any = self.iterations
        return count.value + 1

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        """Updates a weight by its gradient."""
        weight: Any = variable
        dtype, step = weight.dtype, self._step()
        slope, rate = jnp.asarray(gradient, dtype), jnp.asarray(learning_rate, dtype)
        now, next_one = self._momentum_at(step, dtype), self._momentum_at(step + 1, dtype)
        product = jnp.asarray(self._u_product.value, dtype)
        place = self._get_variable_index(variable)
        means, squares = self._momentums[place], self._velocities[place]
        means.assign(self.beta_1 * means.value + (1 - self.beta_1) * slope)
        squares.assign(self.beta_2 * squares.value + (1 - self.beta_2) * slope**2)
        ahead = (1 - now) * slope / (1 - product) + next_one * means.value / (1 - product * next_one)
        spread = jnp.sqrt(squares.value / (1 - jnp.asarray(self.beta_2, dtype) ** jnp.asarray(step, dtype)))
        weight.assign(weight.value - rate * ahead / (spread + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return {**super().get_config(), "schedule_decay": self.schedule_decay}


def _translate(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    kwargs = dict(arguments)
    if kwargs.pop("decay", None):
        raise ArgumentError("legacy.Nadam takes schedule_decay= in place of decay=. Received: decay=.")
    rate = kwargs.get("lr", kwargs.get("learning_rate"))
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        raise ArgumentError(f"The learning rate of legacy.Nadam is a number. Received: {rate!r}. Use optimizers.Nadam.")
    return _optimizers.translate(name, kwargs)


Nadam = alias(_Nadam, _translate, "Nadam")
