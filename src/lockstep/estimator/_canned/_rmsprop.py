"""RMSProp with the formula of TensorFlow's canned estimators."""

from __future__ import annotations

import jax.numpy as jnp
import keras

from lockstep._types import Array, Variable


class RMSProp(keras.optimizers.RMSprop):
    """Keras' RMSprop without momentum, and with the epsilon outside of the root.

    With gradients of 0.001, Keras' steps are a third smaller. Source: tf.keras.optimizers.legacy.RMSprop.
    """

    def __init__(self, learning_rate: float = 0.001) -> None:
        super().__init__(learning_rate=learning_rate, name="rmsprop")

    def update_step(self, gradient: Array, variable: Variable, learning_rate: Array) -> None:
        """Updates one variable; called by Keras."""
        squares = self._velocities[self._get_variable_index(variable)]
        squares.assign(self.rho * squares.value + (1 - self.rho) * gradient**2)
        variable.assign(variable.value - learning_rate * gradient / (jnp.sqrt(squares.value) + self.epsilon))
