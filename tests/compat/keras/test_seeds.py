"""Whose random numbers `fit` takes, and which seeds make what repeatable."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep._engine.runtime import randomness


def _model() -> Any:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,), kernel_initializer="ones")])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    return model


def _data() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(32, 4)).astype("f"), draw.normal(size=(32, 1)).astype("f")


def _weights_after_fit(model: Any) -> np.ndarray:
    model.fit(*_data(), batch_size=4, verbose=0)
    return model.get_weights()[0]


@pytest.mark.parametrize("shuffle", [True, "batch", False])
@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy, tf.distribute.MirroredStrategy])
def test_fit_leaves_the_programs_generators_alone(shuffle: bool | str, strategy: Any) -> None:
    with strategy().scope():
        model = _model()
    np.random.seed(3)
    random.seed(3)
    expected = np.random.RandomState(3).rand(2).tolist(), random.Random(3).random()
    model.fit(*_data(), batch_size=8, epochs=2, shuffle=shuffle, verbose=0)
    assert (np.random.rand(2).tolist(), random.random()) == expected


@pytest.mark.parametrize("seed", [tf.random.set_seed, tf.keras.utils.set_random_seed])
def test_a_seed_makes_the_order_of_data_and_numbers_repeatable(seed: Any) -> None:
    found = []
    for number in (5, 5, 6):
        seed(number)
        numbers = [np.asarray(tf.random.uniform([2])), np.asarray(tf.random.uniform([2], seed=7))]
        found.append(np.concatenate([_weights_after_fit(_model()).ravel(), *numbers]))
    assert np.array_equal(found[0], found[1])
    assert all(not np.array_equal(a, b) for a, b in zip(np.split(found[0], [4]), np.split(found[2], [4]), strict=True))


def test_another_pass_has_another_order() -> None:
    tf.random.set_seed(5)
    model = _model()
    first = _weights_after_fit(model)
    again = _model()
    assert not np.array_equal(first, _weights_after_fit(again))


def test_the_order_is_part_of_a_position() -> None:
    tf.random.set_seed(5)
    _weights_after_fit(_model())
    state = randomness.snapshot()
    first = _weights_after_fit(_model())
    tf.random.set_seed(9)
    randomness.restore(state)
    assert np.array_equal(first, _weights_after_fit(_model()))
