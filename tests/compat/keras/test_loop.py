"""Models of TensorFlow's names without a strategy run on lockstep's loop; those of plain Keras stay on Keras' own."""

from __future__ import annotations

import threading
from typing import Any

import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep._engine.keras.ownership import ownership
from tests.compat.keras import plain, small


def train(model: Any) -> dict[str, list[float]]:
    x, y = small.data()
    return model.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), shuffle=False, verbose=0).history


@pytest.mark.slow
def test_a_model_without_a_strategy_trains_as_on_one_device() -> None:
    model = small.model()
    assert ownership(model) is None
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        owned = small.model()
    owned.set_weights(model.get_weights())
    found, expected = train(model), train(owned)
    assert ownership(model) is not None
    assert found == expected
    for a, b in zip(model.get_weights(), owned.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"])
def test_every_method_does(call: str) -> None:
    model = small.model()
    x, y = small.data()
    arguments = {"x": x} if "predict" in call else {"x": x, "y": y}
    getattr(model, call)(**arguments)
    assert ownership(model) is not None


def test_a_model_of_plain_keras_stays_on_keras_loop() -> None:
    small.model()  # A model of TensorFlow's names was compiled before.
    model = plain.classifier()
    train(model)
    assert ownership(model) is None


@pytest.mark.slow
def test_within_a_scope_that_it_was_not_made_in_keras_trains_a_model() -> None:
    model = small.model()
    with tf.distribute.MirroredStrategy().scope():
        train(model)
    assert ownership(model) is None


def test_a_distribution_of_keras_own_is_left_to_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.distribution, "distribution", lambda: object())
    model = small.model()
    x, _ = small.data()
    model.predict(x, verbose=0)
    assert ownership(model) is None


@pytest.mark.slow
def test_in_other_threads_keras_trains_models() -> None:
    models, histories = [small.model() for _ in range(2)], list[Any]()
    threads = [threading.Thread(target=lambda m=m: histories.append(train(m))) for m in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(histories) == 2 and not any(ownership(model) for model in models)
