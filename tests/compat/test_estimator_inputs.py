"""What input_fns return, what models begin with, and what Estimators of Keras models take."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

v1 = tf.compat.v1
X = np.ones((4, 2), np.float32)


def counting(features: Any, labels: Any, mode: str) -> Any:
    weight = tf.Variable(1.0, name="w")
    total = sum(tf.reduce_sum(part) for part in tf.nest.flatten(features)) if features else 0.0
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(weight * weight, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=weight * weight * 0 + total, train_op=train_op)


def apart() -> Any:
    features, labels = v1.estimator.inputs.numpy_input_fn(
        {"x": X, "y": X}, X, batch_size=2, num_epochs=1, shuffle=False
    )()
    return {"z": features["x"]}, labels


@pytest.mark.parametrize(
    ("input_fn", "total"),
    [
        (lambda: ({}, None), 0),
        (lambda: ({"x": X}, None), 8),
        (lambda: ((X, (X, X)), X), 24),
        (lambda: ([X, [X, X]], X), 24),
        (apart, 4),
    ],
)
def test_what_input_fns_return(tmp_path: Path, input_fn: Any, total: float) -> None:
    estimator = tf.estimator.Estimator(counting, str(tmp_path))
    assert estimator.train(input_fn, steps=2).get_variable_value("global_step") == 2
    assert estimator.evaluate(input_fn, steps=1)["loss"] == total


def test_no_epochs_are_no_examples(tmp_path: Path) -> None:
    input_fn = v1.estimator.inputs.numpy_input_fn({"x": X}, X, num_epochs=0, shuffle=True)
    with pytest.raises(ValueError, match="at least one batch"):
        tf.estimator.Estimator(counting, str(tmp_path)).train(input_fn)


def test_params_of_any_class(tmp_path: Path) -> None:
    def with_params(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return tf.estimator.EstimatorSpec(mode, predictions=tf.ones([4, 1]) * params.factor)

    estimator = tf.estimator.Estimator(with_params, str(tmp_path), params=SimpleNamespace(factor=3.0))
    assert next(estimator.predict(lambda: {"x": X})) == 3


def test_floats_are_crossed_by_their_whole_part(tmp_path: Path) -> None:
    crossed = tf.feature_column.indicator_column(tf.feature_column.crossed_column(["age", "sex"], 20))

    def columns(features: Any, labels: Any, mode: str) -> Any:
        return tf.estimator.EstimatorSpec(mode, v1.feature_column.input_layer(features, [crossed]))

    features = {
        "age": np.array([[22.7], [-1.5], [0.2], [99.99]], np.float32),
        "sex": np.array([b"m", b"f", b"m", b"f"]),
    }
    found = tf.estimator.Estimator(columns, str(tmp_path)).predict(lambda: tf.data.Dataset.from_tensors(features))
    assert [int(np.argmax(row)) for row in found] == [7, 5, 15, 1]


def receiver() -> Any:
    return tf.estimator.export.build_raw_serving_input_receiver_fn({"x": v1.placeholder(tf.float32, [None, 2])})


@pytest.mark.slow
def test_exports_give_first_weights(tmp_path: Path) -> None:
    columns = [tf.feature_column.numeric_column("x", shape=(2,))]

    def make(directory: str, **kwargs: Any) -> Any:
        return tf.estimator.LinearRegressor(columns, str(tmp_path / directory), **kwargs)

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensors(({"x": X}, np.arange(4, dtype=np.float32)))

    first = make("first").train(lambda: input_fn().repeat(), steps=3)
    exported = first.export_saved_model(str(tmp_path / "exports"), receiver())
    expected = first.evaluate(input_fn)["loss"]
    second = make("second", warm_start_from=exported)
    assert second.evaluate(input_fn)["loss"] == expected
    assert make("third").evaluate(input_fn, checkpoint_path=os.fsdecode(exported))["loss"] == expected
    # Before any training, too.
    again = second.export_saved_model(str(tmp_path / "again"), receiver())
    assert make("fourth", warm_start_from=again).evaluate(input_fn)["loss"] == expected
    with pytest.raises(tf.errors.InvalidArgumentError, match="Couldn't find trained model"):
        make("fifth").export_saved_model(str(tmp_path / "none"), receiver())


@pytest.mark.slow
def test_models_of_keras_take_weights_of_examples_and_are_exported_untrained(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    labels, weights = np.arange(4, dtype=np.float32)[:, None], np.array([0, 0, 1, 1], np.float32)
    convert = tf.keras.estimator.model_to_estimator
    estimator = convert(model, model_dir=str(tmp_path / "model"), metric_names_map={"mae": "error"})

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensors(({"features": X, "sample_weights": weights}, labels))

    found = estimator.evaluate(input_fn)
    expected = model.evaluate(X, labels, sample_weight=weights, verbose=0)
    np.testing.assert_allclose([found["loss"], found["error"]], expected, rtol=1e-5)
    exported = estimator.export_saved_model(str(tmp_path / "exports"), receiver())
    outputs = tf.saved_model.load(exported).signatures["serving_default"](x=tf.constant(X))
    np.testing.assert_allclose(next(iter(outputs.values())), model.predict(X, verbose=0), rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="metric_names_map"):
        convert(model, model_dir=str(tmp_path / "other"), metric_names_map={"no": "a"}).evaluate(input_fn)
