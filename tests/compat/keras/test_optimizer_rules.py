"""Nadam and averages of weights as Keras 2 computes them; figures of TensorFlow 2.15 on the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError


def _data() -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(32, 4)).astype("f"), draw.normal(size=(32, 1)).astype("f")
    kernel, last = draw.normal(size=(4, 3)).astype("f"), draw.normal(size=(3, 1)).astype("f")
    return x, y, [kernel, np.zeros(3, "f"), last, np.zeros(1, "f")]


def _model() -> Any:
    layers = [tf.keras.layers.Dense(3, activation="tanh", input_shape=(4,)), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.set_weights(_data()[2])
    return model


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "nadam": lambda: tf.keras.optimizers.Nadam(0.1),
    "legacy nadam": lambda: tf.keras.optimizers.legacy.Nadam(0.1),
    "averages": lambda: tf.keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9),
    "averages that are used": lambda: tf.keras.optimizers.Adam(
        0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "losses", "weights"),
    [
        ("nadam", [1.3334845, 1.0289192], [0.7033392, 0.366143, 0.3913356]),
        ("legacy nadam", [1.3384216, 1.0313379], [0.6696279, 0.3652955, 0.3704655]),
        ("averages", [1.3396413, 1.0589815], [0.8034799, 0.3825158, 0.4246420]),
        ("averages that are used", [1.3538998, 1.1207062], [0.8197776, 0.4030739, 0.5042352]),
    ],
)
@pytest.mark.parametrize("devices", [1, 2])
def test_fit_follows_keras_2(name: str, losses: list[float], weights: list[float], devices: int) -> None:
    x, y, _ = _data()
    with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)]).scope():
        model = _model()
        model.compile(OPTIMIZERS[name](), "mse")
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(history.history["loss"], losses, rtol=2e-5)
    np.testing.assert_allclose(model.get_weights()[2].ravel(), weights, rtol=2e-5)


def _steps(wrap: Callable[[Any], Any], optimizer: Any) -> np.ndarray:
    x, y, _ = _data()
    model = _model()

    @wrap
    def step(a: Any, b: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(a) - b) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    for i in range(8):
        rows = slice(i % 4 * 8, i % 4 * 8 + 8)
        step(tf.constant(x[rows]), tf.constant(y[rows]))
    return model.get_weights()[2].ravel()


@pytest.mark.slow
def test_nadam_multiplies_once_a_step_in_plain_python_only() -> None:
    plain = _steps(lambda function: function, OPTIMIZERS["nadam"]())
    np.testing.assert_allclose(plain, [0.669666, 0.3803361, 0.3567512], rtol=2e-5)
    compiled = _steps(tf.function, OPTIMIZERS["nadam"]())
    np.testing.assert_allclose(compiled, [0.7033392, 0.366143, 0.3913356], rtol=2e-5)


def test_averages_begin_with_the_weights() -> None:
    optimizer = tf.keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.75)
    variable = tf.Variable([4.0])
    optimizer.apply_gradients([(tf.constant([4.0]), variable)])
    assert variable.numpy().tolist() == [0.0]
    optimizer.finalize_variable_values([variable])
    assert variable.numpy().tolist() == [3.0]


def test_the_former_nadam_is_saved_with_its_schedule() -> None:
    made = tf.keras.optimizers.legacy.Nadam(lr=0.25, schedule_decay=0.5)
    again = type(made).from_config(made.get_config())
    assert again.schedule_decay == 0.5
    assert float(again.learning_rate) == 0.25
    with pytest.raises(ArgumentError, match="schedule_decay"):
        tf.keras.optimizers.legacy.Nadam(decay=0.1)
    with pytest.raises(ArgumentError, match="a number"):
        tf.keras.optimizers.legacy.Nadam(tf.keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.5))
