"""Training with Keras 2's methods and arguments."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest

import lockstep
import lockstep.compat.tensorflow.keras as tf_keras
from lockstep.errors import UnsupportedError
from tests.compat.keras import small


class Batches(tf_keras.utils.Sequence):
    """As programs for Keras 2 write it: without calling the base class."""

    def __init__(self) -> None:
        self.x, self.y = small.data()

    def __len__(self) -> int:
        return math.ceil(len(self.x) / 8)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.x[index * 8 : index * 8 + 8], self.y[index * 8 : index * 8 + 8]


def endless():
    x, y = small.data()
    while True:
        for start in range(0, len(x), 8):
            yield x[start : start + 8], y[start : start + 8]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [False, True])
def test_generators(strategy: bool) -> None:
    if strategy:
        with lockstep.distribute.MirroredStrategy().scope():
            model = small.model()
    else:
        model = small.model()
    history = model.fit_generator(
        endless(), 4, epochs=2, verbose=0, validation_data=Batches(), max_queue_size=10, workers=1
    )
    assert len(history.history["val_acc"]) == 2
    assert int(model.optimizer.iterations) == 8
    losses = model.evaluate_generator(Batches(), workers=2, verbose=0)
    assert len(losses) == 2
    x, _ = small.data()
    said = model.predict_generator(Batches(), steps=4, use_multiprocessing=False, verbose=0)
    np.testing.assert_allclose(said, model.predict(x, verbose=0), rtol=1e-5)


@pytest.mark.slow
def test_reading_ahead() -> None:
    batches = Batches()
    small.model().fit(batches, workers=3, use_multiprocessing=False, max_queue_size=4, verbose=0)
    assert (batches.workers, batches.use_multiprocessing, batches.max_queue_size) == (3, False, 4)
    model = small.model()
    with pytest.warns(UserWarning, match="read ahead by one thread"):
        model.fit(*small.data(), workers=4, verbose=0)
    model.fit(*small.data(), workers=4, verbose=0)  # Once is enough.
    model.fit(*small.data(), workers=1, use_multiprocessing=False, verbose=0)


def test_classes() -> None:
    model, (x, _) = small.trained(), small.data()
    assert np.array_equal(model.predict_proba(x), model.predict(x, verbose=0))
    assert np.array_equal(model.predict_classes(x), model.predict(x, verbose=0).argmax(axis=-1))
    binary = tf_keras.Sequential([tf_keras.layers.Dense(1, activation="sigmoid", input_shape=(4,))])
    assert set(np.unique(binary.predict_classes(x, batch_size=8))) <= {0, 1}
    assert model.updates == model.state_updates == []


def test_metrics_names() -> None:
    model = small.model(metrics=["acc", tf_keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")])
    assert model.metrics_names == ["loss", "acc", "top2"]
    values = model.evaluate(*small.data(), verbose=0)
    assert model.metrics_names == ["loss", "acc", "top2"]
    named = model.evaluate(*small.data(), verbose=0, return_dict=True)
    assert dict(zip(model.metrics_names, values, strict=True)) == named
    assert small.model(metrics=None).metrics_names == ["loss"]


def test_metrics_names_of_several_outputs() -> None:
    inputs = tf_keras.Input((4,))
    outputs = {name: tf_keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b")}
    model = tf_keras.Model(inputs, outputs)
    model.compile("sgd", {"a": "mse", "b": "mae"}, metrics={"a": ["mae"], "b": ["mse"]})
    x, y = small.data()
    values = model.evaluate(x, {"a": y, "b": y}, verbose=0)
    assert len(model.metrics_names) == len(values)
    named = model.evaluate(x, {"a": y, "b": y}, verbose=0, return_dict=True)
    assert dict(zip(model.metrics_names, values, strict=True)) == named


def test_compile() -> None:
    model = small.model(
        sample_weight_mode=None,
        target_tensors=None,
        distribute=None,
        experimental_run_tf_function=False,
        run_eagerly=None,
        jit_compile=None,
        steps_per_execution=None,
        weighted_metrics=[],
    )
    assert model.steps_per_execution == 1
    assert small.model(experimental_steps_per_execution=4).steps_per_execution == 4
    model.fit(*small.data(), verbose=0)


@pytest.mark.parametrize("name", ["sample_weight_mode", "target_tensors", "distribute"])
def test_what_compile_cannot_honour(name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        small.model(**{name: "temporal"})


def test_metrics() -> None:
    class Count(tf_keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__("count")
            self.seen = self.add_weight("seen", initializer="zeros")
            self.parts = self.add_weight("parts", (2,), initializer="ones")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.seen.assign_add(keras.ops.cast(keras.ops.shape(y_true)[0], "float32"))

        def result(self):
            return self.seen

    count = Count()
    count.update_state(np.zeros(3), None)
    assert float(count.result()) == 3
    assert count.parts.shape == (2,)
    count.reset_states()
    assert float(count.result()) == 0


def test_reductions() -> None:
    y_true, y_pred = np.asarray([[0.0], [0.0]]), np.asarray([[1.0], [3.0]])
    make, reduction = tf_keras.losses.MeanSquaredError, tf_keras.losses.Reduction
    assert np.array_equal(make(reduction=reduction.NONE)(y_true, y_pred), [1.0, 9.0])
    assert float(make(reduction=reduction.SUM)(y_true, y_pred)) == 10
    assert float(make(reduction=reduction.AUTO)(y_true, y_pred)) == 5
    assert float(make(reduction=reduction.SUM_OVER_BATCH_SIZE)(y_true, y_pred)) == 5
    assert make(reduction="auto").get_config()["reduction"] == "sum_over_batch_size"
    with pytest.raises(ValueError, match="reduction"):
        make(reduction="nonsense")


def test_a_model_of_a_class_loads_compiled_without_a_warning(tmp_path) -> None:
    small.trained().save(tmp_path / "m.keras")
    assert keras.models.load_model(tmp_path / "m.keras").compiled


@pytest.mark.slow
def test_pictures_from_a_generator() -> None:
    make = tf_keras.preprocessing.image.ImageDataGenerator(rescale=1 / 255, rotation_range=20, horizontal_flip=True)
    x = np.full((8, 6, 6, 3), 255.0, "float32")
    batch, labels = next(make.flow(x, np.arange(8), batch_size=4, shuffle=False))
    assert batch.shape == (4, 6, 6, 3)
    assert np.array_equal(labels, range(4))
    np.testing.assert_allclose(batch, 1.0, rtol=1e-5)
    model = tf_keras.Sequential([tf_keras.layers.Flatten(input_shape=(6, 6, 3)), tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit_generator(make.flow(x, np.arange(8.0), batch_size=4), epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_text() -> None:
    words = tf_keras.preprocessing.text.Tokenizer(num_words=3)
    words.fit_on_texts(["a b a", "a c"])
    assert words.texts_to_sequences(["a b"]) == [[1, 2]]
    padded = tf_keras.preprocessing.sequence.pad_sequences([[1], [1, 2]])
    assert np.array_equal(padded, [[0, 1], [1, 2]])
