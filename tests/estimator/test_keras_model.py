"""Keras models as Estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from lockstep import estimator
from lockstep.data import Dataset
from lockstep.errors import ArgumentError

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(12, 2)
Y = (X.sum(1, keepdims=True) > 0).astype(np.float32)


def model(compiled: bool = True) -> keras.Model:
    layers = [
        keras.layers.Input((2,), name="x"),
        keras.layers.Dense(3, activation="tanh"),
        keras.layers.Dense(1, name="y"),
    ]
    made = keras.Sequential(layers)
    if compiled:
        made.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae", keras.metrics.MeanSquaredError()])
    return made


def input_fn() -> Any:
    return Dataset.from_tensor_slices(({"x": X}, Y)).batch(4)


@pytest.mark.slow
def test_it_trains_as_fit_does(tmp_path: Path) -> None:
    keras.optimizers.SGD(0.5)  # So that the model's has another automatic name than in a model_fn.
    original = model()
    weights = original.get_weights()
    made = estimator.model_to_estimator(original, model_dir=str(tmp_path)).train(input_fn)
    for before, after in zip(weights, original.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    found = made.evaluate(input_fn, steps=None)
    original.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
    for variable in original.trainable_variables:
        np.testing.assert_allclose(made.get_variable_value(variable.path), variable.numpy(), rtol=1e-5, atol=1e-6)
    expected = original.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True)
    assert found.keys() == {"loss", "global_step", "mae", "mean_squared_error"}
    assert found["mae"] == pytest.approx(expected["mae"], rel=1e-5)
    predicted = [p["y"] for p in made.predict(input_fn)]
    np.testing.assert_allclose(predicted, original.predict(X, verbose=0), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_several_outputs(tmp_path: Path) -> None:
    inputs = keras.layers.Input((2,), name="x")
    hidden = keras.layers.Dense(3, activation="tanh")(inputs)
    original = keras.Model(inputs, [keras.layers.Dense(1, name=name)(hidden) for name in ("a", "b")])
    both = {"a": "mse", "b": "mae"}
    original.compile("sgd", both, metrics={"a": ["mae"], "b": ["mae"]}, loss_weights={"a": 1.0, "b": 0.5})
    data = Dataset.from_tensor_slices(({"x": X}, {"a": Y, "b": -Y})).batch(4)
    made = estimator.model_to_estimator(original, model_dir=str(tmp_path)).train(lambda: data)
    found = made.evaluate(lambda: data)
    original.fit(X, {"a": Y, "b": -Y}, batch_size=4, shuffle=False, verbose=0)
    expected = original.evaluate(X, {"a": Y, "b": -Y}, batch_size=4, verbose=0, return_dict=True)
    assert found.keys() == {"loss", "global_step", "a_mae", "b_mae"}
    for name in ("loss", "a_mae", "b_mae"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5)
    assert not [name for name in made.get_variable_names() if "loss" in name]


def test_a_file(tmp_path: Path) -> None:
    original = model()
    original.fit(X, Y, verbose=0)
    original.save(tmp_path / "model.keras")
    made = estimator.model_to_estimator(keras_model_path=tmp_path / "model.keras", model_dir=str(tmp_path / "dir"))
    predicted = [p["y"] for p in made.predict(input_fn)]
    np.testing.assert_allclose(predicted, original.predict(X, verbose=0), rtol=1e-5, atol=1e-6)


def test_a_model_that_is_not_built(tmp_path: Path) -> None:
    lazy = keras.Sequential([keras.layers.Dense(1)])
    lazy.compile("adam", "mse")
    made = estimator.model_to_estimator(lazy, model_dir=str(tmp_path)).train(input_fn, steps=2)
    assert made.evaluate(input_fn)["global_step"] == 2
    assert not lazy.built


def test_metric_names_map(tmp_path: Path) -> None:
    names = {"mae": "error", "mean_squared_error": "squared"}
    made = estimator.model_to_estimator(model(), model_dir=str(tmp_path), metric_names_map=names)
    assert {"error", "squared"} <= set(made.evaluate(input_fn))


@pytest.mark.parametrize("arguments", [{}, {"keras_model": 1, "keras_model_path": "x"}])
def test_exactly_one_model(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="Exactly one"):
        estimator.model_to_estimator(**arguments)


def test_a_model_must_be_compiled() -> None:
    with pytest.raises(ArgumentError, match="must be compiled"):
        estimator.model_to_estimator(model(compiled=False))
