"""Calls of Keras 2 that Keras 3 refuses or answers otherwise; numbers are TensorFlow 2.15's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

keras: Any = tf.keras


def test_numbers_in_lists_and_rates_in_the_history() -> None:
    model = keras.Sequential([keras.layers.Dense(1, input_shape=[1], kernel_initializer="ones")])
    model.compile("sgd", "mse")
    assert model.predict([100.0, 3], verbose=0).tolist() == [[100.0], [3.0]]
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    history = model.fit([1.0, 2.0], [1.0, 2.0], epochs=2, verbose=0, callbacks=[schedule]).history
    assert sorted(history) == ["loss", "lr"]
    np.testing.assert_allclose(history["lr"], [0.1, 0.05], rtol=1e-6)
    assert model.layers[0] in model.submodules


def test_inputs_of_layers() -> None:
    inputs = {"a": keras.Input((1,)), "b": keras.Input((2,))}
    assert keras.layers.Concatenate()(inputs.values()).shape == (None, 3)
    assert np.array_equal(keras.layers.Dense(1, kernel_initializer="ones")([[2.0, 2.0]]), [[4.0]])


@pytest.mark.slow
def test_a_model_that_begins_with_an_embedding_is_built() -> None:
    model = keras.Sequential([keras.layers.Embedding(100, 16), keras.layers.GlobalAveragePooling1D()])
    model.add(keras.layers.Dense(1))
    assert model.count_params() == 1617
    assert model.input_shape == (None, None)


class _Net(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(3), keras.layers.Dense(1)

    def call(self, inputs: Any, is_training: bool = False) -> Any:
        return self.second(self.first(inputs))


@pytest.mark.slow
def test_layers_are_restored_when_they_are_built(tmp_path: Path) -> None:
    x = np.ones((2, 4), "float32")
    net = _Net()
    # Before it has weights, there are none to save.
    net.save_weights(str(tmp_path / "none"))
    expected = np.asarray(net(x))
    net.save_weights(str(tmp_path / "net.ckpt"))
    later = _Net()
    status = later.load_weights(str(tmp_path / "net.ckpt"))
    with pytest.raises(AssertionError, match="not built"):
        status.assert_consumed()
    assert np.array_equal(later(x), expected)
    status.assert_consumed()
    path = tf.train.Checkpoint(model=net).save(tmp_path / "all")
    later = _Net()
    checkpoint = tf.train.Checkpoint(model=later)
    status = checkpoint.restore(path)
    # What waits is saved, too.
    again = checkpoint.save(tmp_path / "again")
    call = tf.function(lambda inputs: later(inputs))
    np.testing.assert_allclose(call(x), expected, rtol=1e-6)
    status.assert_consumed()
    trained = _Net()
    trained.compile("sgd", "mse")
    tf.train.Checkpoint(model=trained).restore(again)
    np.testing.assert_allclose(trained.predict(x, verbose=0), expected, rtol=1e-6)


@pytest.mark.slow
def test_labels_that_do_not_add_up_to_one() -> None:
    labels = np.asarray([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], "float32")
    logits = tf.constant([[1.0, 2.0, 3.0]] * 3)
    probabilities = np.asarray(tf.nn.softmax(logits))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        loss = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
        of_keras = keras.losses.categorical_crossentropy(labels, logits, from_logits=True)
    np.testing.assert_allclose(loss, [3.8152118, 4.2228179, 0.0], rtol=1e-6)
    # TensorFlow's derivative is that of distributions.
    np.testing.assert_allclose(tape.gradient(loss, logits), probabilities - labels, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(of_keras, logits), probabilities - labels, rtol=1e-5)
