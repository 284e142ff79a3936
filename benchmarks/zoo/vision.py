"""Networks for pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.zoo.network import Keras, Model, Network, classifier, pictures


def _application(name: str, side: int, batch: int, steps: int = 4, policy: str = "float32", **settings: Any) -> Network:
    """Returns a network of `keras.applications`, without its weights."""

    def build(keras: Keras) -> Model:
        make = getattr(keras.applications, name)
        model = make(input_shape=(side, side, 3), weights=None, classes=10, classifier_activation=None, **settings)
        return classifier(keras, model)

    suffix = "" if policy == "float32" else f" {policy}"
    title = f"{name} on {side}x{side}"
    return Network(f"{name}{suffix}", title, build, pictures(side), batch, steps, policy)


def _residual(keras: Keras, x: Any, filters: int, strides: int) -> Any:
    layers = keras.layers
    shortcut = x
    if strides > 1 or x.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1, strides, use_bias=False)(x)
        shortcut = layers.BatchNormalization()(shortcut)
    x = layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.Add()([layers.BatchNormalization()(x), shortcut]))


def resnet18(side: int, batch: int, policy: str = "float32") -> Network:
    """Returns ResNet-18 with the stem of ImageNet: the last stage is as small as side / 32."""

    def build(keras: Keras) -> Model:
        layers = keras.layers
        inputs = keras.Input((side, side, 3))
        x = layers.Conv2D(64, 7, 2, padding="same", use_bias=False)(inputs)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D(3, 2, padding="same")(x)
        for stage, filters in enumerate((64, 128, 256, 512)):
            x = _residual(keras, x, filters, 1 if stage == 0 else 2)
            x = _residual(keras, x, filters, 1)
        outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
        return classifier(keras, keras.Model(inputs, outputs))

    suffix = "" if policy == "float32" else f" {policy}"
    name = f"ResNet-18, {side} pixels{suffix}"
    return Network(name, f"ResNet-18 on {side}x{side}", build, pictures(side), batch, 6, policy)


def _unet(keras: Keras) -> Model:
    layers = keras.layers

    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same")(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    inputs = keras.Input((96, 96, 3))
    x, skips = inputs, []
    for filters in (16, 32, 64):
        x = block(x, filters)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, 128)
    for filters, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 2, 2, padding="same")(x)
        x = block(layers.Concatenate()([x, skip]), filters)
    return classifier(keras, keras.Model(inputs, layers.Conv2D(3, 1)(x)))


def _fcn(keras: Keras) -> Model:
    """Returns a fully convolutional network: three scales, upsampled to the size of the picture."""
    layers = keras.layers
    inputs = x = keras.Input((96, 96, 3))
    scales = []
    for factor, filters in ((2, 32), (4, 64), (8, 128)):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        scales.append(layers.UpSampling2D(factor, interpolation="bilinear")(layers.Conv2D(32, 1)(x)))
    x = layers.ReLU()(layers.Add()(scales))
    return classifier(keras, keras.Model(inputs, layers.Conv2D(3, 1)(x)))


def _masks(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.random((count, 96, 96, 3), np.float32), random.integers(0, 3, (count, 96, 96), np.int32)


def _tutorial(augmented: bool) -> Network:
    """Returns the network of TensorFlow's tutorial on image classification."""

    def build(keras: Keras) -> Model:
        layers = keras.layers
        inputs = keras.Input((180, 180, 3))
        x = inputs
        if augmented:
            for layer in (layers.RandomFlip("horizontal"), layers.RandomRotation(0.1), layers.RandomZoom(0.1)):
                x = layer(x)
        x = layers.Rescaling(1 / 255)(x)
        for filters in (16, 32, 64):
            x = layers.MaxPooling2D()(layers.Conv2D(filters, 3, padding="same", activation="relu")(x))
        x = layers.Flatten()(layers.Dropout(0.2)(x))
        outputs = layers.Dense(5)(layers.Dense(128, activation="relu")(x))
        return classifier(keras, keras.Model(inputs, outputs))

    name = "tutorial's CNN, augmented" if augmented else "tutorial's CNN"
    return Network(name, "three convolutions on 180x180", build, pictures(180, 5), 32, 6)


def _grouped(keras: Keras) -> Model:
    """A small ResNeXt: convolutions with groups."""
    layers = keras.layers
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(64, 3, padding="same")(inputs)
    for filters, strides in ((64, 1), (128, 2), (256, 2)):
        y = layers.Conv2D(filters, 1, use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.Conv2D(filters, 3, strides, padding="same", groups=8, use_bias=False)(y)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        x = layers.Add()([y, layers.Conv2D(filters, 1, strides, use_bias=False)(x)])
    return classifier(keras, keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x))))


def _vit(keras: Keras) -> Model:
    """A vision transformer: patches of 4 on 32 pixels, 6 layers of 128."""
    layers = keras.layers
    inputs = keras.Input((32, 32, 3))
    x = layers.Reshape((64, 128))(layers.Conv2D(128, 4, 4)(inputs))
    for _ in range(6):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 32, dropout=0.1)(y, y)])
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.Dropout(0.1)(layers.Dense(256, activation="gelu")(y))
        x = layers.Add()([x, layers.Dense(128)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return classifier(keras, keras.Model(inputs, layers.Dense(10)(x)))


def _convolutional_autoencoder(keras: Keras) -> Model:
    layers = keras.layers
    inputs = keras.Input((28, 28, 1))
    x = inputs
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, 2, padding="same", activation="relu")(x)
    x = layers.Dense(64)(layers.Flatten()(x))
    x = layers.Reshape((7, 7, 64))(layers.Dense(7 * 7 * 64, activation="relu")(x))
    for filters in (64, 32):
        x = layers.Conv2DTranspose(filters, 3, 2, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Conv2DTranspose(1, 3, padding="same", activation="sigmoid")(x))
    model.compile("adam", "binary_crossentropy")
    return model


def _same_pictures(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).random((count, 28, 28, 1), np.float32)
    return x, x


def _discriminator(keras: Keras) -> Model:
    """The half of DCGAN that looks at pictures, with the generator in front of it: one model, trained whole."""
    layers = keras.layers
    inputs = keras.Input((100,))
    x = layers.Dense(7 * 7 * 256, use_bias=False)(inputs)
    x = layers.Reshape((7, 7, 256))(layers.LeakyReLU()(layers.BatchNormalization()(x)))
    for filters, strides in ((128, 1), (64, 2)):
        x = layers.Conv2DTranspose(filters, 5, strides, padding="same", use_bias=False)(x)
        x = layers.LeakyReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2DTranspose(1, 5, 2, padding="same", use_bias=False, activation="tanh")(x)
    for filters in (64, 128):
        x = layers.Dropout(0.3)(layers.LeakyReLU()(layers.Conv2D(filters, 5, 2, padding="same")(x)))
    model = keras.Model(inputs, layers.Dense(1)(layers.Flatten()(x)))
    model.compile(keras.optimizers.Adam(1e-4), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def _noise(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((count, 100), np.float32), random.integers(0, 2, (count, 1)).astype(np.float32)


NETWORKS = [
    _application("MobileNetV2", 96, 16),
    _application("MobileNetV3Small", 96, 16),
    _application("ResNet50", 64, 8),
    _application("EfficientNetB0", 96, 8),
    _application("DenseNet121", 64, 8),
    _application("InceptionV3", 96, 8),
    _application("Xception", 96, 8),
    _application("VGG16", 64, 8),
    _application("ConvNeXtTiny", 64, 8),
    _application("NASNetMobile", 64, 8),
    resnet18(32, 32),
    resnet18(64, 32),
    resnet18(96, 16),
    resnet18(64, 32, "mixed_bfloat16"),
    Network("U-Net", "U-Net 16-32-64-128 on 96x96", _unet, _masks, 16, 4),
    Network("FCN", "three scales, joined by bilinear upsampling, on 96x96", _fcn, _masks, 8, 4),
    Network("DCGAN", "DCGAN's generator and discriminator as one model", _discriminator, _noise, 64, 4),
    Network("ResNeXt", "convolutions of 8 groups on 32x32", _grouped, pictures(32), 32, 6),
    Network("ViT", "6 layers of 128 over 64 patches", _vit, pictures(32), 64, 6),
    Network(
        "convolutional autoencoder",
        "strided and transposed convolutions on 28x28",
        _convolutional_autoencoder,
        _same_pictures,
        128,
        6,
    ),
    _tutorial(augmented=False),
    _tutorial(augmented=True),
]
