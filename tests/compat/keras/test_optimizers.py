"""Optimizers with Keras 2's arguments and names."""

from __future__ import annotations

from pathlib import Path

import keras
import lockstep.compat.tensorflow.keras.backend as K
import numpy as np
import pytest

import lockstep
import lockstep.compat.tensorflow.keras as tf_keras
from lockstep.errors import ArgumentError
from tests.compat.keras import small

NAMES = ["SGD", "Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [tf_keras.optimizers, tf_keras.optimizers.legacy, tf_keras.optimizers.experimental])
def test_they_make_optimizers_of_keras(name: str, place: object) -> None:
    if name == "Nadam" and place is tf_keras.optimizers.legacy:
        pytest.skip("it has a class of its own, for its schedule")
    alias, real = getattr(place, name), getattr(keras.optimizers, name)
    made = alias(lr=0.25, clipnorm=1.0)
    assert type(made) is real
    assert isinstance(made, alias)
    assert isinstance(real(0.1), alias)
    assert not isinstance(keras.optimizers.Lion(), alias)
    assert issubclass(real, alias)
    assert float(made.lr) == float(made.learning_rate) == 0.25
    assert made.clipnorm == 1.0
    assert alias.from_config(made.get_config()).get_config() == made.get_config()


@pytest.mark.parametrize("rate", [1, np.float32(0.5), np.asarray(2), keras.ops.convert_to_tensor(0.25)])
def test_any_number_is_a_learning_rate(rate: object) -> None:
    assert float(tf_keras.optimizers.SGD(rate).lr) == float(rate)
    assert float(keras.optimizers.SGD(lr=rate).lr) == float(rate)


def test_assigning_the_learning_rate() -> None:
    model = small.trained()
    model.optimizer.lr = 0.5
    assert float(model.optimizer.learning_rate) == 0.5
    K.set_value(model.optimizer.lr, 0.25)
    assert K.get_value(model.optimizer.lr) == 0.25
    model.optimizer.lr.assign(0.125)
    assert float(K.get_value(model.optimizer.learning_rate)) == 0.125
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.5)
    assert float(tf_keras.optimizers.SGD(schedule).lr) == 0.5


@pytest.mark.slow
def test_a_rate_that_is_set_is_trained_with() -> None:
    model = small.trained(optimizer="sgd")
    K.set_value(model.optimizer.lr, 0.0)
    before = model.get_weights()
    model.fit(*small.data(), verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_decay_is_what_it_was() -> None:
    optimizer = tf_keras.optimizers.SGD(lr=0.5, decay=0.25)
    for step in range(4):
        assert np.isclose(float(optimizer.lr), 0.5 / (1 + 0.25 * step))
        optimizer.iterations.assign_add(1)
    assert np.isclose(float(tf_keras.optimizers.SGD(decay=1.0).lr), 0.01)
    assert np.isclose(float(tf_keras.optimizers.Adam(decay=0.0).lr), 0.001)
    with pytest.raises(ArgumentError, match="decay"):
        tf_keras.optimizers.SGD(tf_keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.5), decay=0.1)


def test_keras_itself_still_warns_of_decay() -> None:
    with pytest.warns(UserWarning, match="decay"):
        keras.optimizers.SGD(decay=0.5)


def test_weights_come_out_as_they_go_in() -> None:
    model, other = small.trained(), small.trained()
    other.optimizer.set_weights(model.optimizer.get_weights())
    for one, two in zip(model.optimizer.weights, other.optimizer.weights, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.slow
def test_a_class_derived_from_an_optimizer(tmp_path: Path) -> None:
    @tf_keras.utils.register_keras_serializable()
    class Half(tf_keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate / 2)

    half = Half(lr=0.5, name="half")
    assert isinstance(half, keras.optimizers.SGD)
    assert not isinstance(keras.optimizers.SGD(), Half)
    model, plain = small.model(optimizer=half), small.model(optimizer=tf_keras.optimizers.SGD(0.25))
    plain.set_weights(model.get_weights())
    for each in (model, plain):
        each.fit(*small.data(), shuffle=False, verbose=0)
    for one, two in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
    model.save(tmp_path / "saved")
    assert type(tf_keras.models.load_model(tmp_path / "saved").optimizer) is Half


@pytest.mark.slow
def test_decay_under_a_strategy() -> None:
    weights = []
    for replicas in (1, 4):
        tf_keras.utils.set_random_seed(1)
        devices = [f"cpu:{index}" for index in range(replicas)]
        with lockstep.distribute.MirroredStrategy(devices).scope():
            model = small.model(optimizer=tf_keras.optimizers.SGD(lr=0.5, decay=0.1, momentum=0.9))
        model.fit(*small.data(), batch_size=8, epochs=2, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, two in zip(*weights, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SGD", "Adam", "Ftrl", "RMSprop"])
def test_variables_may_come_after_it_was_built(name: str) -> None:
    one, late = (getattr(tf_keras.optimizers.legacy, name)(learning_rate=0.1) for _ in range(2))
    first, second = ([keras.Variable([1.0, 2.0]), keras.Variable([3.0])] for _ in range(2))
    gradients = [np.float32([0.1, 0.2]), np.float32([0.3])]
    for _ in range(2):
        one.apply_gradients(zip(gradients, first, strict=True))
    # What is kept of the first stays when the second comes; each has made two steps then.
    late.apply_gradients([(gradients[0], second[0])])
    late.iterations.assign(0)
    late.apply_gradients([(gradients[1], second[1])])
    late.apply_gradients(zip(gradients, second, strict=True))
    for ours, theirs in zip(second, first, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_no_gradients_change_nothing() -> None:
    optimizer = tf_keras.optimizers.Adam()
    assert int(optimizer.apply_gradients([])) == 0 and int(optimizer.iterations) == 0
