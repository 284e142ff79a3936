"""tf.compat.v1.layers: layers of Keras as functions, for use in a model_fn, and as classes."""

# ruff: noqa: D417

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any as _Any

import keras as _keras

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._ops import dispatch as _dispatch
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.compat.tensorflow._types import ShapeLike as _ShapeLike
from lockstep.compat.tensorflow.compat.v1 import _layer_classes as _classes
from lockstep.compat.tensorflow.compat.v1 import _scopes

__all__ = ["AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "BatchNormalization", "Conv1D", "Conv2D"]
__all__ += ["Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Dense", "Dropout", "Flatten", "InputSpec", "Layer"]
__all__ += ["MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "SeparableConv1D", "SeparableConv2D"]
__all__ += ["average_pooling1d", "average_pooling2d", "average_pooling3d", "batch_normalization", "conv1d", "conv2d"]
__all__ += ["conv2d_transpose", "conv3d", "conv3d_transpose", "dense", "dropout", "flatten", "max_pooling1d"]
__all__ += ["max_pooling2d", "max_pooling3d", "separable_conv1d", "separable_conv2d"]


def _find_layer(kind: str, name: str | None, reuse: _Argument, options: dict[str, _Any]) -> _Any:
    """Returns a new layer, or that which was made under this name in the variable scope that is open."""

    def make() -> _Any:
        return getattr(_keras.layers, kind)(name=name, **options)

    # Without a name each call makes a layer, as in TensorFlow 1.
    return make() if name is None else _scopes.find_or_make("Layer", name, reuse, make)


def _function(kind: str, tf_name: str, what: str) -> _Callable[..., _Any]:
    """Returns the function that makes and applies a layer of Keras.

    Args:
        kind: The layer.
        tf_name: The function's name.
        what: What it does, for its documentation.
    """

    def function(
        inputs: _Tensor, *args: _Argument, name: str | None = None, reuse: _Argument = None, **kwargs: _Argument
    ) -> _Any:
        layer = _find_layer(kind, name, reuse, _classes.keras_options(kind, args, kwargs))
        return layer(_dispatch.to_array(_dispatch.DEVICE, inputs))

    function.__name__ = function.__qualname__ = tf_name
    function.__doc__ = (
        f"{what}, by keras.layers.{kind}, whose arguments it takes after `inputs`.\n\n"
        "With a `name`, and `reuse` here or in the variable scope, the layer is the one that was made under it.\n\n"
        f"Source: tf.compat.v1.layers.{tf_name}."
    )
    return function


dense = _function("Dense", "dense", "Multiplies by a matrix")
flatten = _function("Flatten", "flatten", "Makes one dimension of all but the first")
conv1d = _function("Conv1D", "conv1d", "Convolves sequences")
conv2d = _function("Conv2D", "conv2d", "Convolves images")
conv3d = _function("Conv3D", "conv3d", "Convolves volumes")
conv2d_transpose = _function("Conv2DTranspose", "conv2d_transpose", "Undoes the shape of conv2d")
conv3d_transpose = _function("Conv3DTranspose", "conv3d_transpose", "Undoes the shape of conv3d")
separable_conv1d = _function("SeparableConv1D", "separable_conv1d", "Convolves by channels, then mixes")
separable_conv2d = _function("SeparableConv2D", "separable_conv2d", "Convolves by channels, then mixes")
max_pooling1d = _function("MaxPooling1D", "max_pooling1d", "Takes the greatest of neighbours")
max_pooling2d = _function("MaxPooling2D", "max_pooling2d", "Takes the greatest of neighbours")
max_pooling3d = _function("MaxPooling3D", "max_pooling3d", "Takes the greatest of neighbours")
average_pooling1d = _function("AveragePooling1D", "average_pooling1d", "Averages neighbours")
average_pooling2d = _function("AveragePooling2D", "average_pooling2d", "Averages neighbours")
average_pooling3d = _function("AveragePooling3D", "average_pooling3d", "Averages neighbours")


def dropout(
    inputs: _Tensor,
    rate: float = 0.5,
    noise_shape: _ShapeLike = None,
    seed: int | None = None,
    training: bool = False,
    name: str | None = None,
) -> _Any:
    """Sets a share `rate` of the elements to zero in training, and scales the others up.

    Args:
        training: Whether to; it must be known, such as `mode == tf.estimator.ModeKeys.TRAIN`.

    Source: tf.compat.v1.layers.dropout.
    """
    # A new layer draws its own numbers.
    layer = _keras.layers.Dropout(rate, noise_shape, seed, name=name)
    return layer(_dispatch.to_array(_dispatch.DEVICE, inputs), training=bool(training))


def batch_normalization(
    inputs: _Tensor,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    training: bool = False,
    trainable: bool = True,
    name: str | None = None,
    reuse: _Argument = None,
    fused: bool | None = None,
    **kwargs: _Argument,
) -> _Any:
    """Normalises by the moments of the batch in training, else by the moving ones, which training updates by itself.

    Args:
        training: Which; it must be known, such as `mode == tf.estimator.ModeKeys.TRAIN`.
        fused: Either: XLA chooses.
        kwargs: Other arguments of keras.layers.BatchNormalization.

    Source: tf.compat.v1.layers.batch_normalization.
    """
    options: dict[str, _Any] = {
        "axis": axis,
        "momentum": momentum,
        "epsilon": epsilon,
        "center": center,
        "scale": scale,
        "trainable": trainable,
        "fused": fused,
        **kwargs,
    }
    layer = _find_layer("BatchNormalization", name, reuse, _classes.keras_options("BatchNormalization", (), options))
    return layer(_dispatch.to_array(_dispatch.DEVICE, inputs), training=bool(training))


InputSpec = _keras.InputSpec
Layer = _classes.Layer
AveragePooling1D, AveragePooling2D, AveragePooling3D, BatchNormalization, Conv1D, Conv2D, Conv2DTranspose = map(
    _classes.layer_class,
    (
        *("AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "BatchNormalization", "Conv1D", "Conv2D"),
        "Conv2DTranspose",
    ),
)
Conv3D, Conv3DTranspose, Dense, Dropout, Flatten, MaxPooling1D, MaxPooling2D, MaxPooling3D = map(
    _classes.layer_class,
    (
        *("Conv3D", "Conv3DTranspose", "Dense", "Dropout", "Flatten", "MaxPooling1D", "MaxPooling2D"),
        "MaxPooling3D",
    ),
)
SeparableConv1D, SeparableConv2D = map(_classes.layer_class, ("SeparableConv1D", "SeparableConv2D"))

__getattr__ = _missing.getter(__name__)
