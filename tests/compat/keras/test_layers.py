"""Layers with Keras 2's arguments and attributes."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow.keras as tf_keras
from lockstep.errors import LockstepError

layers = tf_keras.layers


@pytest.mark.slow
def test_the_shape_of_the_first_layer() -> None:
    assert tf_keras.Sequential([layers.Dense(2, input_shape=(3,)), layers.Dense(1)]).input_shape == (None, 3)
    assert tf_keras.Sequential([layers.Dense(2, input_dim=3), layers.Dense(1)]).output_shape == (None, 1)
    fixed = tf_keras.Sequential([layers.LSTM(2, batch_input_shape=(4, 5, 3), stateful=True), layers.Dense(1)])
    assert fixed.input_shape == (4, 5, 3)
    open_batch = tf_keras.Sequential()
    open_batch.add(layers.Dense(2, batch_input_shape=(None, 3)))
    open_batch.add(layers.Dense(1))
    assert open_batch.input_shape == (None, 3)
    assert tf_keras.Sequential([layers.InputLayer(input_shape=(3,)), layers.Dense(1)]).input_shape == (None, 3)
    words = tf_keras.Sequential([layers.Embedding(10, 4, input_length=6), layers.Flatten(), layers.Dense(1)])
    assert words.input_shape == (None, 6)


def test_initial_weights() -> None:
    kernel, bias = np.ones((3, 2), "float32"), np.full(2, 5.0, "float32")
    layer = layers.Dense(2, weights=[kernel, bias])
    assert np.array_equal(layer(np.ones((1, 3))), [[8.0, 8.0]])
    assert np.array_equal(layers.Embedding(3, 2, weights=[kernel])(np.asarray([1])), [[1.0, 1.0]])


def test_shapes_of_calls() -> None:
    layer = layers.Dense(2)
    with pytest.raises(AttributeError, match="never been called"):
        _ = layer.output_shape
    first, second = tf_keras.Input((3,)), tf_keras.Input((4, 3))
    out = layer(first)
    assert layer.input_shape == (None, 3)
    assert layer.output_shape == (None, 2)
    assert layer.get_output_at(0) is out
    assert layer.get_input_at(0) is first
    layer(second)
    assert layer.get_input_shape_at(1) == (None, 4, 3)
    assert layer.get_output_shape_at(1) == (None, 4, 2)
    with pytest.raises(AttributeError, match="several shapes"):
        _ = layer.input_shape
    merged = layers.Add()
    merged([out, out])
    assert merged.input_shape == [(None, 2), (None, 2)]


def test_a_layer_that_was_called_does_not_build_another_model() -> None:
    layer = keras.layers.Dense(2)
    layer(keras.Input((3,)))
    assert not keras.Sequential([layer, keras.layers.Dense(1)]).built


def test_a_layer_with_its_own_input_shape_keeps_it() -> None:
    class Mine(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.input_shape = "mine"

    assert Mine().input_shape == "mine"


def test_a_layer_that_names_its_weights_first() -> None:
    class Scale(layers.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight("scale", shape=(input_shape[-1],), initializer="ones", trainable=True)
            self.shift = self.add_weight("shift", (input_shape[-1],), "float32", "zeros")

        def call(self, inputs):
            return inputs * self.scale + self.shift

    layer = Scale(input_shape=(3,))
    assert np.array_equal(layer(np.ones((2, 3))), np.ones((2, 3)))
    assert [weight.name for weight in layer.weights] == ["scale", "shift"]


@pytest.mark.slow
def test_batch_normalization() -> None:
    x = np.random.default_rng(1).normal(size=(8, 3)).astype("float32")
    plain = keras.layers.BatchNormalization()(x, training=True)
    for layer in (
        layers.BatchNormalization(fused=True, renorm=False, virtual_batch_size=None),
        layers.BatchNormalization(synchronized=True),
        layers.experimental.SyncBatchNormalization(),
    ):
        assert type(layer) is keras.layers.BatchNormalization
        np.testing.assert_allclose(layer(x, training=True), plain)


def test_cudnn_layers_are_the_plain_ones() -> None:
    with pytest.warns(UserWarning, match="uses cuDNN where"):
        assert type(layers.CuDNNLSTM(2, return_sequences=True)) is keras.layers.LSTM
    with pytest.warns(UserWarning, match="CuDNNGRU"):
        assert type(layers.CuDNNGRU(2)) is keras.layers.GRU


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: layers.BatchNormalization(virtual_batch_size=4), "virtual_batch_size"),
        (lambda: layers.LSTM(2, time_major=True), "time_major"),
        (lambda: layers.CuDNNGRU(2, dropout=0.5), "dropout"),
        (lambda: layers.Dense(2, dynamic=True), "dynamic"),
        (lambda: layers.InputLayer((3,), ragged=True), "ragged"),
        (lambda: layers.ThresholdedReLU(-1.0), "theta"),
    ],
)
def test_what_cannot_be_honoured(make, says: str) -> None:
    with pytest.raises(LockstepError, match=says):
        make()


def test_an_unknown_argument_is_still_refused() -> None:
    with pytest.raises(ValueError, match="Unrecognized keyword"):
        layers.Dense(2, colour="red")
    with pytest.raises(ValueError, match="batch_size"):
        layers.Dense(2, batch_size=3)


@pytest.mark.slow
def test_states_are_reset() -> None:
    recurrent = layers.LSTM(2, stateful=True)
    model = tf_keras.Sequential([tf_keras.Input(batch_shape=(1, 3, 2)), recurrent])
    x = np.ones((1, 3, 2), "float32")
    first, second = np.asarray(model(x)), np.asarray(model(x))
    assert not np.array_equal(first, second)
    model.reset_states()
    assert np.array_equal(model(x), first)
    recurrent.reset_states()
    assert not np.any([np.asarray(state) for state in recurrent.states])


@pytest.mark.slow
def test_layers_that_were_saved_are_plain_ones(tmp_path: Path) -> None:
    model = tf_keras.Sequential(
        [
            layers.Embedding(10, 4, input_length=6),
            layers.LSTM(3),
            layers.BatchNormalization(fused=True),
            layers.ThresholdedReLU(0.1),
            layers.experimental.preprocessing.Rescaling(2.0),
        ]
    )
    x = np.arange(12).reshape(2, 6) % 10
    model.save(tmp_path / "saved")
    again = tf_keras.models.load_model(tmp_path / "saved")
    assert np.array_equal(model(x), again(x))


def test_a_class_derived_from_an_aliased_layer() -> None:
    class Mine(layers.BatchNormalization):
        pass

    assert Mine(fused=False, name="mine").name == "mine"
    assert isinstance(Mine(), keras.layers.BatchNormalization)
    assert not isinstance(keras.layers.BatchNormalization(), Mine)


def test_thresholded_relu() -> None:
    assert np.array_equal(layers.ThresholdedReLU(1.0)(np.asarray([-1.0, 1.0, 2.0])), [0.0, 0.0, 2.0])
