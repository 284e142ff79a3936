"""Crossentropies of a softmax or sigmoid: TensorFlow 2.15 computes from the logits behind them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

X = np.array([[1.0, -2.0, 40.0], [3.0, 5.0, -100.0], [0.5, 0.1, 0.2]], "float32")
IDS = np.array([1, 2, 0])
HOT = np.eye(3, dtype="float32")[IDS]
# TensorFlow 2.15.1: from_logits=True of evaluate and train_on_batch, and of the loss called with the model's output;
# then the same with from_logits=False.
EXPECTED = {
    ("softmax", "SparseCategoricalCrossentropy"): (49.3357, 49.3357, 49.3357, 49.3357),
    ("softmax", "BinaryCrossentropy"): (17.0569, 17.0569, 17.0569, 17.0569),
    ("sigmoid", "CategoricalCrossentropy"): (49.3357, 49.3357, 49.3357, 49.3357),
    ("tf.nn.softmax", "BinaryCrossentropy"): (0.8425, 0.8425, 5.5473, 5.5567),
    ("tf.nn.sigmoid", "SparseCategoricalCrossentropy"): (1.5139, 1.5139, 6.8431, 6.8431),
    ("tf.nn.sigmoid", "BinaryCrossentropy"): (17.0569, 0.9753, 17.0569, 4.9189),
}


def last_layer(kind: str) -> Any:
    given = {"tf.nn.softmax": tf.nn.softmax, "tf.nn.sigmoid": tf.nn.sigmoid}
    return tf.keras.layers.Softmax() if kind == "layer" else tf.keras.layers.Activation(given.get(kind, kind))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "loss"), EXPECTED)
def test_losses_are_those_of_tensorflow(kind: str, loss: str) -> None:
    y = IDS if loss.startswith("Sparse") else HOT
    found: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for from_logits in (True, False):
            model = tf.keras.Sequential([tf.keras.Input((3,)), last_layer(kind)])
            function = getattr(tf.keras.losses, loss)(from_logits=from_logits)
            model.compile("sgd", function)
            found += [model.evaluate(X, y, verbose=0), float(function(y, model(X)))]
            assert model.train_on_batch(X, y) == pytest.approx(found[-2], abs=1e-4)
    assert found == pytest.approx(EXPECTED[kind, loss], abs=1e-4)


@pytest.mark.slow
def test_a_softmax_with_from_logits_warns() -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(3, activation="softmax")])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    with pytest.warns(UserWarning, match="Was this intended"):
        model.evaluate(X, IDS, verbose=0)
    with pytest.warns(UserWarning, match="Was this intended"):
        loss(IDS, model(X))


def test_plain_keras_is_as_it_was() -> None:
    code = "import keras\nloss = keras.losses.CategoricalCrossentropy()(y, keras.activations.softmax(x))"
    names: dict[str, Any] = {"__name__": "a_library", "x": X, "y": HOT}
    exec(code, names)
    # Clipped at keras.config.epsilon(), as Keras 3 computes it with JAX.
    assert float(names["loss"]) == pytest.approx(11.0388, abs=1e-4)
