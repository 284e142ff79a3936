"""What Keras 2 took in compile and fit, and the order and the names of results; figures of TensorFlow 2.15.1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import UnsupportedError

L = tf.keras.layers
X = np.linspace(-1, 1, 32).reshape(8, 4).astype("float32")
Y = np.arange(8) % 2


def one_output() -> Any:
    return tf.keras.Sequential([tf.keras.Input(4), L.Dense(1, activation="sigmoid", kernel_initializer="ones")])


def two_outputs() -> Any:
    inputs = tf.keras.Input((4,))
    first = L.Dense(1, activation="sigmoid", kernel_initializer="ones", name="b")(inputs)
    second = L.Dense(3, activation="softmax", kernel_initializer="ones", name="a")(inputs)
    return tf.keras.Model(inputs, [first, second])


@pytest.mark.parametrize("metrics", [["accuracy"], "accuracy", [tf.keras.metrics.BinaryAccuracy("accuracy")]])
def test_metrics_by_position_and_alone(metrics: Any) -> None:
    model = one_output()
    model.compile("sgd", "mse", metrics)
    assert model.evaluate(X, Y, verbose=0)[1] == pytest.approx(0.5)
    assert model.metrics_names == ["loss", "accuracy"]


@pytest.mark.slow
def test_two_outputs_give_results_in_their_order() -> None:
    losses = ["mse", "sparse_categorical_crossentropy"]
    model = two_outputs()
    model.compile("sgd", losses, metrics=[["mae"], ["accuracy"]])
    history = model.fit(X, [Y, Y], epochs=1, verbose=0, validation_data=(X, [Y, Y])).history
    names = ["loss", "b_loss", "a_loss", "b_mae", "a_accuracy"]
    assert list(history) == [*names, *(f"val_{name}" for name in names)]
    assert model.metrics_names == names
    expected = [1.4185, 0.3219, 1.0966, 0.4394, 0.5]
    assert model.evaluate(X, [Y, Y], verbose=0) == pytest.approx(expected, abs=1e-4)
    assert model.evaluate(X, [Y, Y], verbose=0, return_dict=True) == pytest.approx(
        dict(zip(names, expected, strict=True)), abs=1e-4
    )


@pytest.mark.slow
def test_a_flat_list_of_metrics_is_for_each_output() -> None:
    model = two_outputs()
    model.compile("sgd", {"b": "mse", "a": "sparse_categorical_crossentropy"}, ["accuracy"], {"a": 2.0})
    found = model.evaluate(X, {"a": Y, "b": Y}, verbose=0, return_dict=True)
    assert list(found) == ["loss", "b_loss", "a_loss", "b_accuracy", "a_accuracy"]
    assert found["loss"] == pytest.approx(0.3219 + 2 * 1.0986, abs=1e-4)


@pytest.mark.slow
def test_metrics_and_weighted_metrics_of_one_name() -> None:
    # Another one in the process does not change the name.
    tf.keras.metrics.AUC()
    model = one_output()
    model.compile("sgd", "mse", metrics=["accuracy", "AUC"], weighted_metrics=["accuracy"])
    found = model.evaluate(X, Y, sample_weight=np.arange(8.0), verbose=0)
    assert model.metrics_names == ["loss", "accuracy", "auc", "weighted_accuracy"]
    assert len(found) == 4


def test_steps_are_rounded_up() -> None:
    model = one_output()
    model.compile(tf.compat.v1.train.GradientDescentOptimizer(0.1), "mse")
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2).repeat()
    model.fit(data, steps_per_epoch=7 / 4, epochs=1, verbose=0)
    assert int(model.optimizer.iterations) == 2


def test_an_optimizer_with_another_rule_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="RMSProp"):
        one_output().compile(tf.compat.v1.train.RMSPropOptimizer(0.1), "mse")


def test_defaults_are_those_of_keras_2() -> None:
    np.testing.assert_allclose(
        tf.keras.activations.hard_sigmoid(np.array([-1.0, 1.0, 2.6])), [0.3, 0.7, 1.0], rtol=1e-6
    )
    assert L.ConvLSTM2D(2, 3).get_config()["recurrent_activation"] == "hard_sigmoid"
    assert float(tf.keras.optimizers.Lion().learning_rate) == pytest.approx(1e-4)
    assert tf.keras.metrics.KLDivergence().name == "kullback_leibler_divergence"
    assert L.Dense(tf.constant(3)).units == 3
