"""Models that are fed with text, as Keras 2's programs make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import UnsupportedError

L = tf.keras.layers
TEXTS = np.array(["good film", "bad film", "very good", "very bad movie"] * 4)
LABELS = np.array([1, 0, 1, 0] * 4)


def vectorizer() -> Any:
    layer = L.TextVectorization(max_tokens=20, output_sequence_length=4)
    layer.adapt(TEXTS)
    return layer


def head() -> list[Any]:
    return [L.Embedding(20, 3, mask_zero=True), L.GlobalAveragePooling1D(), L.Dense(1)]


def compiled(model: Any) -> Any:
    model.compile("adam", tf.keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


@pytest.mark.slow
def test_a_sequential_model_trains_as_on_numbers(tmp_path: Path) -> None:
    words = vectorizer()
    tf.keras.utils.set_random_seed(1)
    model = compiled(tf.keras.Sequential([words, *head()]))
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)
    found = model.fit(data, epochs=2, verbose=0, validation_data=data).history
    tf.keras.utils.set_random_seed(1)
    inner = compiled(tf.keras.Sequential(head()))
    numbers = data.map(lambda x, y: (words(x), y))
    expected = inner.fit(numbers, epochs=2, verbose=0, validation_data=numbers).history
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5)
    shown = model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(shown, inner.predict(words(TEXTS), verbose=0), rtol=1e-5)
    np.testing.assert_allclose(model(tf.constant(TEXTS[:2])), shown[:2], rtol=1e-5)
    for name in ("model.keras", "directory", "model.h5"):
        model.save(str(tmp_path / name))
        loaded = tf.keras.models.load_model(str(tmp_path / name))
        np.testing.assert_allclose(loaded.predict(TEXTS, verbose=0), shown, rtol=1e-5)
    # A trained model behind a layer of text, as for export.
    whole = tf.keras.Sequential([words, inner, L.Activation("sigmoid")])
    np.testing.assert_allclose(whole.predict(data, verbose=0), 1 / (1 + np.exp(-shown)), rtol=1e-5)


@pytest.mark.slow
def test_categories_and_numbers_of_a_table() -> None:
    table = {"kind": np.array(["a", "b", "c", "a"] * 4), "age": np.array([3, 5, 9, 3] * 4), "x": np.arange(16.0)}
    inputs = {
        "kind": tf.keras.Input((1,), name="kind", dtype=tf.string),
        "age": tf.keras.Input((1,), name="age", dtype="int64"),
        "x": tf.keras.Input((1,), name="x"),
    }
    kinds, ages, scale = L.StringLookup(output_mode="one_hot"), L.IntegerLookup(), L.Normalization(axis=None)
    kinds.adapt(table["kind"])
    ages.adapt(table["age"])
    scale.adapt(table["x"])
    coded = L.CategoryEncoding(ages.vocabulary_size())(ages(inputs["age"]))
    features = L.Concatenate()([kinds(inputs["kind"]), coded, scale(inputs["x"])])
    prepared = tf.keras.Model(inputs, features)
    rows = np.asarray(prepared(table))
    # "a" is the most frequent, then the greater one: c, b.
    np.testing.assert_allclose(rows[:3, :4], [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    np.testing.assert_allclose(rows[:, -1], (table["x"] - 7.5) / table["x"].std(), rtol=1e-5)
    for output in (L.Dense(1)(features), tf.keras.Sequential([L.Dense(1)])(prepared(inputs))):
        model = tf.keras.Model(inputs, output)
        model.compile("adam", "mse")
        data = tf.data.Dataset.from_tensor_slices((table, LABELS)).batch(8)
        assert np.isfinite(model.fit(data, epochs=1, verbose=0).history["loss"]).all()
        one = {"kind": tf.constant(["a"]), "age": tf.constant([3]), "x": tf.constant([1.0])}
        assert model.predict(one, verbose=0).shape == (1, 1)


@pytest.mark.slow
def test_a_model_of_a_class_takes_text_in_calls_alone() -> None:
    class Classifier(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.rest = vectorizer(), tf.keras.Sequential(head())

        def call(self, x: Any) -> Any:
            return self.rest(self.words(x))

    model = compiled(Classifier())
    assert model(tf.constant(TEXTS[:3])).shape == (3, 1)


def test_compiled_code_says_what_to_do() -> None:
    words = vectorizer()
    with pytest.raises(UnsupportedError, match="compiled by JAX"):
        jax.jit(lambda x: words(x))(np.arange(3))
