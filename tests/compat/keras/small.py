"""Small models and data."""

from __future__ import annotations

from typing import Any

import numpy as np

import lockstep.compat.tensorflow.keras as tf_keras


def data(examples: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs of shape (examples, 4) and classes of three."""
    draw = np.random.default_rng(7)
    return draw.normal(size=(examples, 4)).astype("float32"), draw.integers(0, 3, examples)


def model(**compiled: Any) -> Any:
    """Returns a compiled classifier, as a program for Keras 2 writes it."""
    made = tf_keras.Sequential(
        [tf_keras.layers.Dense(5, activation="tanh", input_shape=(4,)), tf_keras.layers.Dense(3, activation="softmax")]
    )
    given = {"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "metrics": ["acc"], **compiled}
    made.compile(**given)
    return made


def trained(**compiled: Any) -> Any:
    """Returns a model with random weights and a random state of its optimizer, as if after four steps."""
    made = model(**compiled)
    made.optimizer.build(made.trainable_variables)
    draw = np.random.default_rng()
    for variable in (*made.weights, *made.optimizer.variables[2:]):
        variable.assign(draw.uniform(0.1, 1.0, variable.shape))
    made.optimizer.iterations.assign(4)
    return made
