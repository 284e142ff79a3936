"""Models and columns that Keras 2 has ready; numbers are TensorFlow 2.15's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

keras: Any = tf.keras
X = np.linspace(-1, 1, 24).reshape(8, 3).astype("float32")
Y = X.sum(1, keepdims=True) ** 2


def _deep() -> Any:
    constant = keras.initializers.Constant
    hidden = keras.layers.Dense(4, activation="tanh", kernel_initializer=constant(0.3))
    return keras.Sequential([hidden, keras.layers.Dense(1, kernel_initializer=constant(0.2))])


def _fit(model: Any, optimizer: Any, x: Any = X) -> Any:
    model.compile(optimizer, "mse")
    return model.fit(x, Y, epochs=2, shuffle=False, verbose=0, batch_size=4).history["loss"]


@pytest.mark.slow
def test_linear_and_wide_models() -> None:
    linear = keras.experimental.LinearModel()
    np.testing.assert_allclose(_fit(linear, "sgd"), [18.376211, 17.548748], rtol=1e-6)
    wide = keras.experimental.WideDeepModel(keras.experimental.LinearModel(), _deep(), activation="relu")
    np.testing.assert_allclose(_fit(wide, "sgd"), [16.770973, 15.895556], rtol=1e-6)
    two = keras.experimental.WideDeepModel(keras.experimental.LinearModel(), _deep())
    np.testing.assert_allclose(_fit(two, ["sgd", "adam"], [X, X[:, :2]]), [18.559216, 17.689928], rtol=1e-6)
    np.testing.assert_allclose(two.predict([X[:1], X[:1, :2]], verbose=0), [[-0.11381963]], rtol=1e-5)
    with pytest.raises(ValueError, match="each with one optimizer"):
        two.compile(["sgd"], "mse")


@pytest.mark.slow
def test_columns_of_text_begin_a_sequential_model() -> None:
    column, draw = tf.feature_column, np.random.RandomState(0)
    features = {"age": draw.uniform(0, 60, 40), "kind": draw.choice(["a", "b", "c"], 40)}
    features |= {"breed": draw.choice(list("uvwxyz"), 40), "n": draw.randint(0, 5, 40)}
    labels = draw.randint(0, 2, 40)
    kind = column.categorical_column_with_vocabulary_list("kind", ["a", "b"], num_oov_buckets=1)
    age = column.numeric_column("age")
    buckets = column.bucketized_column(age, [10, 30])
    breed = column.categorical_column_with_vocabulary_list("breed", list("uvwx"))
    constant = keras.initializers.Constant
    columns = [
        age,
        buckets,
        column.indicator_column(kind),
        column.embedding_column(breed, 3, initializer=constant(0.1)),
    ]
    columns += [column.indicator_column(column.crossed_column([buckets, kind], 7))]
    hidden = keras.layers.Dense(4, activation="relu", kernel_initializer=constant(0.02))
    last = keras.layers.Dense(1, kernel_initializer=constant(0.1))
    model = keras.Sequential([keras.layers.DenseFeatures(columns), hidden, last])
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(8)
    model.fit(data, validation_data=data, epochs=2, verbose=0)
    np.testing.assert_allclose(model.evaluate(data, verbose=0), [0.689175, 0.475], rtol=1e-5)
    expected = [[0.26123542], [0.3389096]]
    np.testing.assert_allclose(model.predict(data.map(lambda x, y: x), verbose=0)[:2], expected, rtol=1e-5)
    few = {name: tf.constant(values[:2]) for name, values in features.items()}
    np.testing.assert_allclose(model(few), expected, rtol=1e-5)
