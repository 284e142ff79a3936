"""Steps of Keras 2, `train_step(self, data)`; numbers are TensorFlow 2.15's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

keras: Any = tf.keras
X = np.linspace(-1, 1, 24).reshape(8, 3).astype("float32")
Y = X.sum(1, keepdims=True) ** 2


def _dense(units: int, value: float, **kwargs: Any) -> Any:
    return keras.layers.Dense(units, kernel_initializer=keras.initializers.Constant(value), **kwargs)


class _Compiled(keras.Model):
    """Uses what the model was compiled with."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compiled_loss(y, outputs, regularization_losses=self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.compiled_metrics.update_state(y, outputs)
        return {m.name: m.result() for m in self.metrics}


@pytest.mark.slow
def test_a_step_uses_what_the_model_was_compiled_with() -> None:
    inputs = keras.Input((3,))
    hidden = _dense(4, 0.3, activation="tanh", kernel_regularizer="l2")(inputs)
    model = _Compiled(inputs, _dense(1, 0.2)(hidden))
    model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(X, Y, batch_size=4, epochs=3, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], [18.371862, 18.344364, 18.322817], rtol=1e-6)
    np.testing.assert_allclose(history["mae"], [3.2159486, 3.2119668, 3.2085695], rtol=1e-6)
    np.testing.assert_allclose(model.evaluate(X, Y, verbose=0), [18.304203, 3.2057743], rtol=1e-6)


class _Own(keras.Model):
    """Has metrics of its own, and a step that evaluates."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = _dense(1, 0.2)
        self.loss_tracker, self.mae = keras.metrics.Mean(name="loss"), keras.metrics.MeanAbsoluteError(name="mae")

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = keras.losses.mean_squared_error(y, outputs)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        self.loss_tracker.update_state(loss)
        self.mae.update_state(y, outputs)
        return {"loss": self.loss_tracker.result(), "mae": self.mae.result()}

    def test_step(self, data: Any) -> Any:
        x, y = data
        self.mae.update_state(y, self(x, training=False))
        return {"mae": self.mae.result()}

    @property
    def metrics(self) -> Any:
        return [self.loss_tracker, self.mae]


@pytest.mark.slow
def test_own_metrics_and_evaluation() -> None:
    model = _Own()
    model.compile(optimizer="sgd")
    history = model.fit(X, Y, batch_size=4, epochs=3, shuffle=False, verbose=0, validation_data=(X, Y)).history
    np.testing.assert_allclose(history["loss"], [18.99399, 15.794284, 13.53507], rtol=1e-6)
    np.testing.assert_allclose(history["val_mae"], [2.8757648, 2.6550021, 2.4979157], rtol=1e-6)


class _Extended(keras.Model):
    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return {**logs, "two": logs["loss"] * 2}


@pytest.mark.slow
def test_a_step_extends_the_usual_one() -> None:
    inputs = keras.Input((3,))
    model = _Extended(inputs, _dense(1, 0.2)(inputs))
    model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(X, Y, batch_size=4, epochs=3, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], [18.349625, 18.331306, 18.316917], rtol=1e-6)
    np.testing.assert_allclose(history["two"], [36.6992493, 36.6626128, 36.6338348], rtol=1e-6)


class _Adversaries(keras.Model):
    """Two models, each with an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = keras.Sequential([keras.Input((3,)), _dense(1, 0.3)])
        self.maker = keras.Sequential([keras.Input((2,)), _dense(3, 0.1)])
        self.losses_of = {name: keras.metrics.Mean(name=name) for name in ("judge_loss", "maker_loss")}

    def compile(self) -> None:
        super().compile()
        self.optimizers = {"judge": keras.optimizers.Adam(0.01), "maker": keras.optimizers.Adam(0.02)}
        self.loss_function = keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self) -> Any:
        return list(self.losses_of.values())

    def train_step(self, real: Any) -> Any:
        rows = tf.shape(real)[0]
        noise = tf.random.normal(shape=(rows, 2)) * 0.0 + 0.5
        both = tf.concat([self.maker(noise), real], axis=0)
        labels = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], axis=0)
        for name, given, wanted in (("judge", lambda: both, labels), ("maker", None, tf.zeros((rows, 1)))):
            weights = getattr(self, name).trainable_weights
            with tf.GradientTape() as tape:
                loss = self.loss_function(wanted, self.judge(given() if given else self.maker(noise)))
            pairs = zip(tape.gradient(loss, weights), weights, strict=True)
            self.optimizers[name].apply_gradients(pairs)
            self.losses_of[f"{name}_loss"].update_state(loss)
        return {name: metric.result() for name, metric in self.losses_of.items()}


@pytest.mark.slow
def test_two_optimizers_are_state_of_the_step() -> None:
    model = _Adversaries()
    model.compile()
    history = model.fit(tf.data.Dataset.from_tensor_slices(X).batch(4), epochs=3, verbose=0).history
    np.testing.assert_allclose(history["judge_loss"], [0.69586706, 0.71215701, 0.72988546], rtol=1e-6)
    np.testing.assert_allclose(history["maker_loss"], [0.73555798, 0.69761467, 0.66185880], rtol=1e-6)
    assert model.optimizers["maker"].iterations == 6
    # They are no weights.
    assert len(model.weights) == 4


class _Noise(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        rows = tf.shape(inputs)[0]
        return tf.reshape(inputs, (rows, -1)) + tf.random.normal((rows, 2))


def test_random_numbers_of_a_layer_differ_from_batch_to_batch() -> None:
    tf.random.set_seed(1)
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,)), _Noise()])
    assert model.output_shape == (None, 2)
    assert not any("seed" in weight.path for weight in model.weights)
    predicted = model.predict(np.zeros((6, 3)), batch_size=2, verbose=0)
    assert len(np.unique(predicted)) == 12
    assert not np.array_equal(predicted, model.predict(np.zeros((6, 3)), batch_size=2, verbose=0))


class _Parts(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(3), keras.layers.Dense(2)

    def call(self, inputs: Any, training: Any) -> Any:
        assert training is False
        if isinstance(inputs, dict):
            return self.first(inputs["a"])[:, :1] + self.second(inputs["b"])[:, :1]
        hidden = tf.nn.relu(self.first(inputs))
        return self.second(hidden) + tf.random.normal(tf.shape(hidden))[:, :2]


def test_a_model_is_built_from_shapes() -> None:
    for shape in ((None, 4), [2, 4]):
        model = _Parts()
        model.build(shape)
        assert [tuple(w.shape) for w in model.weights] == [(4, 3), (3,), (3, 2), (2,)]
    model = _Parts()
    model.build({"a": (None, 4), "b": tf.TensorShape([None, 5])})
    assert [tuple(w.shape) for w in model.weights] == [(4, 3), (3,), (5, 2), (2,)]
    with pytest.raises(ValueError, match="built from shapes by its call"):
        _Parts().build((None, 4, None))
