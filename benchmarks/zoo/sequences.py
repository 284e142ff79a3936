"""Networks for text, sound and other sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.zoo.network import Keras, Model, Network, classifier, next_tokens, tokens


def _text(keras: Keras, length: int, width: int, *stack: Any, words: int = 20_000) -> Model:
    """Returns a classifier of texts: an embedding and these layers."""
    model = keras.Sequential([keras.Input((length,), dtype="int32"), keras.layers.Embedding(words, width), *stack])
    model.add(keras.layers.Dense(2))
    return classifier(keras, model)


def _lstm(keras: Keras) -> Model:
    return _text(keras, 80, 128, keras.layers.LSTM(128, dropout=0.2))


def _gru(keras: Keras) -> Model:
    return _text(keras, 80, 128, keras.layers.GRU(64, return_sequences=True), keras.layers.GRU(64))


def _bidirectional(keras: Keras) -> Model:
    layers = keras.layers
    return _text(keras, 80, 64, layers.Bidirectional(layers.LSTM(64, return_sequences=True)), layers.LSTM(32))


def _text_cnn(keras: Keras) -> Model:
    layers = keras.layers
    inputs = keras.Input((200,), dtype="int32")
    x = layers.Embedding(20_000, 128)(inputs)
    branches = [layers.GlobalMaxPooling1D()(layers.Conv1D(100, size, activation="relu")(x)) for size in (3, 4, 5)]
    x = layers.Dropout(0.5)(layers.Concatenate()(branches))
    return classifier(keras, keras.Model(inputs, layers.Dense(2)(x)))


def _tcn(keras: Keras) -> Model:
    """A temporal convolutional network: causal, dilated, residual."""
    layers = keras.layers
    inputs = keras.Input((256, 8))
    x = layers.Conv1D(64, 1)(inputs)
    for dilation in (1, 2, 4, 8, 16):
        y = layers.Conv1D(64, 3, padding="causal", dilation_rate=dilation, activation="relu")(x)
        y = layers.Dropout(0.1)(layers.Conv1D(64, 3, padding="causal", dilation_rate=dilation, activation="relu")(y))
        x = layers.Add()([x, y])
    return classifier(keras, keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x))))


def _signals(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.random((count, 256, 8), np.float32), random.integers(0, 10, count, np.int32)


def _convolutional_lstm(keras: Keras) -> Model:
    layers = keras.layers
    inputs = keras.Input((8, 32, 32, 1))
    x = layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)(inputs)
    x = layers.ConvLSTM2D(16, 3, padding="same")(layers.BatchNormalization()(x))
    model = keras.Model(inputs, layers.Conv2D(1, 3, padding="same")(x))
    model.compile("adam", "mse")
    return model


def _video(keras: Keras) -> Model:
    """Returns a classifier of films: the same convolutions over each picture, then a recurrent layer."""
    layers = keras.layers
    inputs = x = keras.Input((8, 48, 48, 3))
    for layer in (
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
    ):
        x = layers.TimeDistributed(layer)(x)
    return classifier(keras, keras.Model(inputs, layers.Dense(10)(layers.LSTM(64)(x))))


def _videos(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.random((count, 8, 48, 48, 3), np.float32), random.integers(0, 10, count, np.int32)


def _films(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.random((count, 8, 32, 32, 1), np.float32), random.random((count, 32, 32, 1), np.float32)


def _block(keras: Keras, x: Any, width: int, causal: bool, dropout: float) -> Any:
    """Returns one layer of a transformer, normalised after each part as in the first paper."""
    layers = keras.layers
    y = layers.MultiHeadAttention(4, width // 4, dropout=dropout)(x, x, use_causal_mask=causal)
    x = layers.LayerNormalization()(layers.Add()([x, layers.Dropout(dropout)(y)]))
    y = layers.Dense(width)(layers.Dense(4 * width, activation="relu")(x))
    return layers.LayerNormalization()(layers.Add()([x, layers.Dropout(dropout)(y)]))


def encoder(depth: int, width: int, length: int, batch: int, policy: str = "float32") -> Network:
    """Returns a transformer encoder that classifies texts."""

    def build(keras: Keras) -> Model:
        inputs = keras.Input((length,), dtype="int32")
        x = keras.layers.Embedding(10_000, width)(inputs)
        for _ in range(depth):
            x = _block(keras, x, width, causal=False, dropout=0.1)
        x = keras.layers.GlobalAveragePooling1D()(x)
        return classifier(keras, keras.Model(inputs, keras.layers.Dense(2)(x)))

    suffix = "" if policy == "float32" else f" {policy}"
    name = f"encoder {depth}x{width}, {length} tokens{suffix}"
    return Network(name, f"{depth} layers of {width}", build, tokens(length, 10_000), batch, 6, policy)


def decoder(depth: int, width: int, length: int, words: int, batch: int) -> Network:
    """Returns a language model: a causal transformer with a head over all words."""

    def build(keras: Keras) -> Model:
        inputs = keras.Input((length,), dtype="int32")
        x = keras.layers.Embedding(words, width)(inputs)
        for _ in range(depth):
            x = _block(keras, x, width, causal=True, dropout=0.1)
        return classifier(keras, keras.Model(inputs, keras.layers.Dense(words)(x)))

    name = f"decoder {depth}x{width}, {words:,} words"
    return Network(name, f"{depth} causal layers of {width}", build, next_tokens(length, words), batch, 4)


NETWORKS = [
    Network("LSTM", "LSTM of 128 over 80 tokens, dropout", _lstm, tokens(80), 32, 16),
    Network("GRU", "two GRUs of 64 over 80 tokens", _gru, tokens(80), 64, 16),
    Network("bidirectional LSTM", "bidirectional 64 and 32 over 80 tokens", _bidirectional, tokens(80), 64, 16),
    Network("ConvLSTM", "two ConvLSTM2D of 16 over 8 pictures of 32x32", _convolutional_lstm, _films, 8, 4),
    Network("video", "TimeDistributed convolutions over 8 pictures of 48x48, LSTM of 64", _video, _videos, 4, 8),
    Network("TCN", "ten causal dilated convolutions over 256 steps", _tcn, _signals, 64, 8),
    Network("text CNN", "three widths of convolutions over 200 tokens", _text_cnn, tokens(200), 64, 8),
    encoder(2, 128, 128, 32),
    encoder(6, 128, 96, 32),
    encoder(6, 128, 96, 32, "mixed_bfloat16"),
    encoder(1, 64, 512, 8),
    encoder(4, 256, 64, 16),
    decoder(4, 128, 64, 8_000, 16),
]
