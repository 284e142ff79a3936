"""Weights and objects that TensorFlow 2.15 saved: the same values, and the losses of TensorFlow's next steps."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import CheckpointError, StartupOrderError, UnsupportedError
from tests.support.arrays import load_arrays

DATA = Path(__file__).parents[2] / "checkpoint" / "data"
ROWS = np.random.RandomState(7).uniform(-1, 1, (64, 3)).astype(np.float32)
LABELS = (ROWS[:, :1] - 2 * ROWS[:, 1:2] > 0).astype(np.float32)


def keras_model(kind: str) -> Any:
    layers = tf.keras.layers
    if kind == "sequential":
        return tf.keras.Sequential([layers.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    if kind == "lstm":
        return tf.keras.Sequential([layers.Input((5, 3)), layers.LSTM(4), layers.Dense(1)])
    inputs = tf.keras.Input((3,))
    part = tf.keras.Sequential([layers.Dense(4, activation="tanh"), layers.BatchNormalization()], name="part")
    return tf.keras.Model(inputs, layers.Dense(1)(part(inputs)))


MODELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "keras_adam": ("functional", lambda: tf.keras.optimizers.Adam(0.01)),
    "keras_legacy_adam": ("functional", lambda: tf.keras.optimizers.legacy.Adam(0.01)),
    "keras_sgd": ("sequential", lambda: tf.keras.optimizers.SGD(0.01, momentum=0.9)),
    "keras_rmsprop": ("sequential", lambda: tf.keras.optimizers.RMSprop(0.01, momentum=0.5)),
    "keras_lstm": ("lstm", lambda: tf.keras.optimizers.Adam(0.01)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "made"), MODELS.items(), ids=MODELS)
def test_training_goes_on_with_the_losses_of_keras_2(case: str, made: tuple[str, Callable[[], Any]]) -> None:
    kind, optimizer = made
    model = keras_model(kind)
    model.compile(optimizer(), "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_weights(str(DATA / case / "cp.ckpt")).assert_consumed()
    x = np.repeat(ROWS[:, None], 5, 1) if kind == "lstm" else ROWS
    losses = [float(model.train_on_batch(x[:16], LABELS[:16])) for _ in range(3)]
    np.testing.assert_allclose(losses, json.loads((DATA / case / "losses.json").read_text()), rtol=1e-5)


def test_weights_are_equal_bit_for_bit() -> None:
    model = keras_model("functional")
    with pytest.warns(UserWarning, match=r"values that nothing here takes: .*optimizer/"):
        model.load_weights(str(DATA / "keras_adam" / "cp.ckpt"))
    expected = load_arrays(DATA / "keras_adam" / "expected.npz")
    end = "|.ATTRIBUTES|VARIABLE_VALUE"
    part = model.get_layer("part")
    for name, value in {
        "layer_with_weights-0|layer_with_weights-0|kernel": part.layers[0].kernel,
        "layer_with_weights-0|layer_with_weights-1|moving_mean": part.layers[1].moving_mean,
        "layer_with_weights-1|bias": model.layers[-1].bias,
    }.items():
        np.testing.assert_array_equal(np.asarray(value), expected[name + end])


@pytest.mark.slow
def test_the_newest_of_a_manager_is_restored() -> None:
    model, optimizer, step = keras_model("sequential"), tf.keras.optimizers.Adam(0.01), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    newest = tf.train.latest_checkpoint(str(DATA / "tracked"))
    assert newest == str(DATA / "tracked" / "ckpt-1")
    checkpoint.restore(newest)
    assert (int(step), int(optimizer.iterations)) == (5, 5)
    losses = []

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    losses = [float(train_step(ROWS[:16], LABELS[:16])) for _ in range(2)]
    np.testing.assert_allclose(losses, json.loads((DATA / "tracked" / "losses.json").read_text()), rtol=1e-5)


@pytest.mark.slow
def test_another_model_is_named() -> None:
    model = keras_model("lstm")
    with pytest.raises(CheckpointError, match=r"cp\.ckpt\.index has no value for .*lstm[^/]*/lstm_cell/kernel"):
        model.load_weights(str(DATA / "keras_sgd" / "cp.ckpt"))
    layers = tf.keras.layers
    other = tf.keras.Sequential([layers.Input((3,)), layers.Dense(7), layers.Dense(1)])
    with pytest.raises(
        CheckpointError, match=r"layer_with_weights-0/kernel.* with \(3, 4\); .*kernel is \(3, 7\) here"
    ):
        other.load_weights(str(DATA / "keras_sgd" / "cp.ckpt"))


def test_another_optimizer_starts_anew_with_a_warning() -> None:
    model = keras_model("sequential")
    model.compile("adam", "mse")
    with pytest.warns(UserWarning) as caught:
        model.load_weights(str(DATA / "keras_sgd" / "cp.ckpt"))
    assert any("the optimizer starts anew" in str(warning.message) for warning in caught)
    assert int(model.optimizer.iterations) == 0


def test_what_has_no_variables_yet_and_what_has_no_objects() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
    with pytest.raises(StartupOrderError, match="which is not built"):
        model.load_weights(str(DATA / "keras_sgd" / "cp.ckpt"))
    with pytest.raises(UnsupportedError, match="holds variables by name, as TensorFlow 1 saved them"):
        keras_model("sequential").load_weights(str(DATA / "estimator_Adam" / "model.ckpt-5"))


def test_a_checkpoint_of_tensorflow_is_not_written_over(tmp_path: Path) -> None:
    for file in (DATA / "keras_sgd").glob("cp.ckpt*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model = keras_model("sequential")
    with pytest.raises(CheckpointError, match=r"cp\.ckpt\.index belongs to a checkpoint of TensorFlow, which would be"):
        model.save_weights(str(tmp_path / "cp.ckpt"))
    model.save_weights(str(tmp_path / "another"))
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "another")


def zoo() -> Any:
    layers = tf.keras.layers
    image, words = tf.keras.Input((8, 8, 2)), tf.keras.Input((5,), dtype="int32")
    x = layers.Conv2D(3, 3, activation="relu")(image)
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.SeparableConv2D(4, 3, padding="same")(x)
    x = layers.Conv2DTranspose(3, 2)(layers.BatchNormalization()(x))
    x = layers.PReLU()(layers.LayerNormalization()(x))
    x = layers.GlobalAveragePooling2D()(layers.Dropout(0.5)(x))
    y = layers.Embedding(7, 4)(words)
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(y)
    y = layers.MultiHeadAttention(2, 3)(y, y)
    y = layers.TimeDistributed(layers.Dense(3))(y)
    y = layers.RNN(layers.StackedRNNCells([layers.GRUCell(3), layers.SimpleRNNCell(2)]))(y)
    return tf.keras.Model([image, words], layers.Dense(2)(layers.concatenate([x, y])))


@pytest.mark.slow
def test_many_kinds_of_layers_predict_as_in_tensorflow() -> None:
    model, stored = zoo(), load_arrays(DATA / "keras_zoo" / "predicted.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_weights(str(DATA / "keras_zoo" / "cp.ckpt"))
        outputs = model([stored["image"], stored["words"]], training=False)
    np.testing.assert_allclose(np.asarray(outputs), stored["outputs"], rtol=1e-5)


class Subclassed(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = [tf.keras.layers.Dense(3, activation="tanh") for _ in range(2)]
        self.heads = {"one": tf.keras.layers.Dense(1), "two": tf.keras.layers.Dense(1)}
        self.inner = tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(3)])
        self.scale = self.add_weight(name="scale", shape=(3,), initializer="uniform")

    def call(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        x = self.inner(x) * self.scale
        return self.heads["one"](x) + 2 * self.heads["two"](x)


@pytest.mark.slow
def test_models_that_are_classes_of_their_own_predict_as_in_tensorflow() -> None:
    model, parts = Subclassed(), [tf.Variable(0.0), tf.Variable([0, 0])]
    model(ROWS[:4])
    tf.train.Checkpoint(net=model, parts=parts).read(str(DATA / "subclassed" / "ckpt"))
    stored = load_arrays(DATA / "subclassed" / "predicted.npz")
    np.testing.assert_allclose(np.asarray(model(ROWS[:4])), stored["outputs"], rtol=1e-5)
    assert [np.asarray(part).tolist() for part in parts] == [3.0, [1, 2]]
    with pytest.raises(CheckpointError, match=r"a request for 'other'; .* has net, parts"):
        tf.train.Checkpoint(other=model).read(str(DATA / "subclassed" / "ckpt"))
