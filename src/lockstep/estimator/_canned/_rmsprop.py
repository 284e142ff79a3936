"""RMSProp as TensorFlow's canned estimators know it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras


class RMSProp(keras.optimizers.RMSprop):
    """Keras' RMSprop, without momentum, with epsilon beside the root and not in it.

    With gradients of 0.001, Keras' takes steps smaller by a third. Source: tf.keras.optimizers.legacy.RMSprop.
    """

    def __init__(self, learning_rate: Any = 0.001) -> None:
        super().__init__(learning_rate=learning_rate, name="rmsprop")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable; called by Keras."""
        squares = self._velocities[self._get_variable_index(variable)]
        squares.assign(self.rho * squares.value + (1 - self.rho) * gradient**2)
        variable.assign(variable.value - learning_rate * gradient / (jnp.sqrt(squares.value) + self.epsilon))
