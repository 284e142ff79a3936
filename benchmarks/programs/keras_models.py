"""The models, compiled, in the Keras that is passed in: Keras 3, or TensorFlow 2.15's `tf.keras`."""

from __future__ import annotations

from typing import Any


def _compiled(keras: Any, model: Any, optimizer: Any, **settings: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseCategoricalAccuracy()
    model.compile(optimizer=optimizer, loss=loss, metrics=[metric], **settings)
    return model


def mlp(keras: Any, **settings: Any) -> Any:
    """784-256-256-10 with Adam, of Keras' guide to distributed training."""
    inputs = keras.Input((784,))
    x = keras.layers.Dense(256, activation="relu")(inputs)
    x = keras.layers.Dense(256, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(10)(x))
    return _compiled(keras, model, keras.optimizers.Adam(), **settings)


def estimator_cnn(keras: Any, **settings: Any) -> Any:
    """The network of the Estimator tutorial: 347,000 parameters, SGD."""
    layers = [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]
    return _compiled(keras, keras.Sequential(layers), keras.optimizers.SGD(1e-4), **settings)


def workers_cnn(keras: Any, **settings: Any) -> Any:
    """The network of the multi-worker tutorial: 2.77 million parameters, SGD."""
    layers = [
        keras.Input((28, 28)),
        keras.layers.Reshape((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10),
    ]
    return _compiled(keras, keras.Sequential(layers), keras.optimizers.SGD(0.001), **settings)


def mobilenet(keras: Any, side: int = 224, **settings: Any) -> Any:
    """MobileNetV2 for two classes, Adam."""
    model = keras.applications.MobileNetV2(
        input_shape=(side, side, 3), weights=None, classes=2, classifier_activation=None
    )
    return _compiled(keras, model, keras.optimizers.Adam(0.001), **settings)


def resnet(keras: Any, side: int = 224, **settings: Any) -> Any:
    """ResNet-50 for 1,000 classes, SGD with momentum."""
    model = keras.applications.ResNet50(
        input_shape=(side, side, 3), weights=None, classes=1000, classifier_activation=None
    )
    return _compiled(keras, model, keras.optimizers.SGD(0.1, momentum=0.9), **settings)


def lstm(keras: Any, **settings: Any) -> Any:
    """A classifier of texts of 80 tokens: embedding and LSTM of 128, Adam."""
    layers = [
        keras.Input((80,), dtype="int32"),
        keras.layers.Embedding(20_000, 128),
        keras.layers.LSTM(128),
        keras.layers.Dense(2),
    ]
    return _compiled(keras, keras.Sequential(layers), keras.optimizers.Adam(), **settings)


def transformer(keras: Any, **settings: Any) -> Any:
    """A classifier of texts of 128 tokens: two encoder blocks of width 128, 4 heads, Adam."""
    inputs = keras.Input((128,), dtype="int32")
    x = keras.layers.Embedding(20_000, 128)(inputs)
    for _ in range(2):
        attended = keras.layers.MultiHeadAttention(4, 32)(x, x)
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, attended]))
        wide = keras.layers.Dense(512, activation="relu")(x)
        x = keras.layers.LayerNormalization()(keras.layers.Add()([x, keras.layers.Dense(128)(wide)]))
    pooled = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(2)(pooled))
    return _compiled(keras, model, keras.optimizers.Adam(), **settings)
