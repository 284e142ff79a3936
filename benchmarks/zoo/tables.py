"""Networks for rows of numbers and categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.zoo.network import Keras, Model, Network, classifier, vectors

_COUNTS = (100_000, 50_000, 20_000, 5_000, 1_000, 100, 50, 10)


def mlp(widths: tuple[int, ...], batch: int, steps: int) -> Network:
    """Returns a perceptron on rows of 784 numbers."""

    def build(keras: Keras) -> Model:
        hidden = [keras.layers.Dense(width, activation="relu") for width in widths]
        return classifier(keras, keras.Sequential([keras.Input((784,)), *hidden, keras.layers.Dense(10)]))

    name = f"MLP {'-'.join(map(str, widths))}, batch {batch}"
    return Network(name, "dense layers", build, vectors(784), batch, steps)


def _autoencoder(keras: Keras) -> Model:
    layers = keras.layers
    hidden = [layers.Dense(width, activation="relu") for width in (512, 128, 32, 128, 512)]
    model = keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(784, activation="sigmoid")])
    model.compile("adam", "mse")
    return model


def _variational(keras: Keras) -> Model:
    """A variational autoencoder: noise from the seed generator, the divergence as a loss of a layer."""
    layers = keras.layers
    is_keras_3 = hasattr(keras, "ops")

    class Sampling(layers.Layer):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.seeds = keras.random.SeedGenerator(0) if is_keras_3 else None

        def call(self, inputs: Any) -> Any:
            mean, log_variance = inputs
            if is_keras_3:
                ops, noise = keras.ops, keras.random.normal(keras.ops.shape(mean), seed=self.seeds)
                self.add_loss(-0.5 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance)))
                return mean + ops.exp(0.5 * log_variance) * noise
            import tensorflow as tf

            self.add_loss(-0.5 * tf.reduce_mean(1 + log_variance - tf.square(mean) - tf.exp(log_variance)))
            return mean + tf.exp(0.5 * log_variance) * tf.random.normal(tf.shape(mean))

    inputs = keras.Input((784,))
    x = layers.Dense(256, activation="relu")(layers.Dense(512, activation="relu")(inputs))
    x = Sampling()([layers.Dense(16)(x), layers.Dense(16)(x)])
    x = layers.Dense(512, activation="relu")(layers.Dense(256, activation="relu")(x))
    model = keras.Model(inputs, layers.Dense(784, activation="sigmoid")(x))
    model.compile("adam", "binary_crossentropy")
    return model


def _embedded(keras: Keras, width: int) -> tuple[list[Any], list[Any]]:
    inputs = [keras.Input((1,), dtype="int32") for _ in _COUNTS]
    embeddings = [keras.layers.Embedding(n, width)(i) for n, i in zip(_COUNTS, inputs, strict=True)]
    return inputs, [keras.layers.Flatten()(e) for e in embeddings]


def _wide_and_deep(keras: Keras) -> Model:
    layers = keras.layers
    numbers = keras.Input((13,))
    wide_inputs, wide = _embedded(keras, 1)
    deep = [layers.Embedding(n, 16)(i) for n, i in zip(_COUNTS, wide_inputs, strict=True)]
    x = layers.Concatenate()([numbers, *(layers.Flatten()(d) for d in deep)])
    for units in (256, 128, 64):
        x = layers.Dense(units, activation="relu")(x)
    outputs = layers.Dense(1)(layers.Concatenate()([x, *wide]))
    return _clicks_model(keras, keras.Model([numbers, *wide_inputs], outputs))


def _dlrm(keras: Keras) -> Model:
    """A recommender: embeddings, their products with each other, dense layers below and above."""
    layers = keras.layers
    numbers = keras.Input((13,))
    inputs, embedded = _embedded(keras, 32)
    bottom = layers.Dense(32, activation="relu")(layers.Dense(128, activation="relu")(numbers))
    stacked = layers.Concatenate(axis=1)([layers.Reshape((1, 32))(e) for e in [bottom, *embedded]])
    products = layers.Flatten()(layers.Dot(axes=2)([stacked, stacked]))
    x = layers.Concatenate()([bottom, products])
    for units in (256, 128):
        x = layers.Dense(units, activation="relu")(x)
    return _clicks_model(keras, keras.Model([numbers, *inputs], layers.Dense(1)(x)))


def _clicks_model(keras: Keras, model: Model) -> Model:
    model.compile("adagrad", keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def _clicks(count: int) -> tuple[list[np.ndarray], np.ndarray]:
    random = np.random.default_rng(0)
    categories = [random.integers(0, n, (count, 1), np.int32) for n in _COUNTS]
    return [random.random((count, 13), np.float32), *categories], random.integers(0, 2, (count, 1)).astype(np.float32)


def _two_towers(keras: Keras) -> Model:
    """Users and items meet in a dot product."""
    layers = keras.layers
    inputs, towers = [], []
    for count in (50_000, 20_000):
        one = keras.Input((1,), dtype="int32")
        x = layers.Flatten()(layers.Embedding(count, 64)(one))
        inputs.append(one)
        towers.append(layers.Dense(32)(layers.Dense(64, activation="relu")(x)))
    model = keras.Model(inputs, layers.Dot(axes=1)(towers))
    model.compile("adam", "mse")
    return model


def _ratings(count: int) -> tuple[list[np.ndarray], np.ndarray]:
    random = np.random.default_rng(0)
    pairs = [random.integers(0, n, (count, 1), np.int32) for n in (50_000, 20_000)]
    return pairs, random.random((count, 1), np.float32)


NETWORKS = [
    mlp((12,), 32, 256),
    mlp((256, 256), 1, 256),
    mlp((256, 256), 32, 256),
    mlp((256, 256), 512, 32),
    mlp((2048, 2048, 2048), 128, 8),
    Network("autoencoder", "dense layers 784-512-128-32 and back", _autoencoder, vectors(784, None), 128, 32),
    Network("variational autoencoder", "784-512-256-16 and back", _variational, vectors(784, None), 128, 32),
    Network("wide and deep", "eight categories up to 100,000", _wide_and_deep, _clicks, 256, 16),
    Network("DLRM", "eight embeddings of 32, their products", _dlrm, _clicks, 256, 16),
    Network("two towers", "users and items", _two_towers, _ratings, 256, 16),
]
