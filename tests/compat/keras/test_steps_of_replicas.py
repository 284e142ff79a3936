"""Steps of Keras 2 whose losses are divided by the number of replicas; the weights are those of TensorFlow 2.15."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

Loss = Callable[[Any, Any, Any], Any]


def _mean(y: Any, guess: Any) -> Any:
    return tf.reduce_mean((y - guess) ** 2)


LOSSES: dict[str, Callable[[Any], Loss]] = {
    "the strategy's number": lambda strategy: lambda m, y, p: _mean(y, p) / strategy.num_replicas_in_sync,
    "that of the current one": lambda _: (
        lambda m, y, p: _mean(y, p) / tf.distribute.get_strategy().num_replicas_in_sync
    ),
    "rows of each": lambda strategy: (
        lambda m, y, p: (
            tf.reduce_sum((y - p) ** 2) / (tf.cast(tf.shape(y)[0], tf.float32) * strategy.num_replicas_in_sync)
        )
    ),
    "average of the batch": lambda _: lambda m, y, p: tf.nn.compute_average_loss((y - p)[:, 0] ** 2),
    "average of the global batch": lambda _: lambda m, y, p: tf.nn.compute_average_loss((y - p)[:, 0] ** 2, None, 8),
    "the compiled loss": lambda _: lambda m, y, p: m.compiled_loss(y, p),
}


class Model(tf.keras.Model):
    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.dense, self.own_loss = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"), loss

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.own_loss(self, y, self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("inside", [False, True])
def test_the_step_is_that_of_one_device(name: str, inside: bool) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(8, 3)).astype("f"), draw.normal(size=(8, 1)).astype("f")
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = Model(LOSSES[name](strategy))
        model.compile(tf.keras.optimizers.SGD(1.0), "mse")
    with strategy.scope() if inside else contextlib.nullcontext():
        history = model.fit(x, y, batch_size=8, verbose=0)
    error = y - x.sum(1, keepdims=True)
    expected = 1 + 2 * (x * error).mean(0)
    np.testing.assert_allclose(model.get_weights()[0][:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(history.history["loss"], [(error**2).mean()], rtol=1e-5)
    assert strategy.num_replicas_in_sync == 2
