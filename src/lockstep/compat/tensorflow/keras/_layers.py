"""`tf.keras.layers`: layers whose constructors Keras 3 changed, and small ones that it dropped."""

# ruff: noqa: F822

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib
from typing import Any

import keras
import numpy as np
from keras import ops

from lockstep._types import Tensor
from lockstep.compat.tensorflow._types import Argument, ShapeLike
from lockstep.compat.tensorflow.keras._alias import alias, warn_once
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["DenseFeatures", "GRU", "LSTM", "BatchNormalization", "CuDNNGRU", "CuDNNLSTM", "Embedding", "InputLayer"]
__all__ += ["ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Dense", "Input"]
__all__ += ["HashedCrossing", "Hashing", "IntegerLookup", "SimpleRNN", "StringLookup", "TextVectorization"]
__all__ += ["ThresholdedReLU"]

_HERE = "lockstep.compat.tensorflow.keras._preprocessing"
# Imported when they are used.
_LATE = {
    "DenseFeatures": "lockstep.estimator.feature_column",
    "HashedCrossing": f"{_HERE}.hashing",
    "Hashing": f"{_HERE}.hashing",
    "IntegerLookup": f"{_HERE}.lookup_layers",
    "StringLookup": f"{_HERE}.lookup_layers",
    "TextVectorization": f"{_HERE}.text_vectorization",
}


def _batch_normalization(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Drops the options of Keras 2 that change nothing here."""
    kwargs = dict(arguments)
    kwargs.pop("fused", None)  # How it is computed is the compiler's to choose.
    # Statistics are those of the global batch already.
    kwargs.pop("synchronized", None)
    if kwargs.pop("virtual_batch_size", None) is not None:
        raise UnsupportedError(f"{name} has no virtual_batch_size in Keras 3. Use layers.GroupNormalization.")
    if kwargs.pop("adjustment", None) is not None:
        raise UnsupportedError(f"{name} has no adjustment in Keras 3. Leave it out.")
    return kwargs


def _input_layer(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    kwargs = dict(arguments)
    if "input_shape" in kwargs:
        kwargs["shape"] = kwargs.pop("input_shape")
    if "batch_input_shape" in kwargs:
        kwargs["batch_shape"] = kwargs.pop("batch_input_shape")
    for absent in ("ragged", "type_spec"):
        if kwargs.pop(absent, None):
            raise UnsupportedError(f"{name} takes dense inputs: {absent}= was given. Pad them to one shape.")
    return kwargs


def _embedding(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    kwargs = dict(arguments)
    length = kwargs.pop("input_length", None)
    if "input_shape" not in kwargs and "batch_input_shape" not in kwargs:
        # Without a length, too: a sequential model that begins with it is built at once.
        kwargs["input_shape"] = tuple(length) if isinstance(length, (tuple, list)) else (length,)
    return kwargs


def _recurrent(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    kwargs = dict(arguments)
    if kwargs.pop("time_major", False):
        raise UnsupportedError(f"{name} takes (batch, time, features): time_major=True was given. Transpose the input.")
    return kwargs


def _convolutional_lstm(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    # Keras 3 has "sigmoid".
    return {"recurrent_activation": "hard_sigmoid", **arguments}


def Input(
    shape: ShapeLike = None, batch_size: int | None = None, name: str | None = None, *args: Argument, **kwargs: Argument
) -> Any:
    """Returns a placeholder; `shape` may be one number. Source: `tf.keras.Input` of TensorFlow 2.15.

    Raises:
        UnsupportedError: If it is to be ragged, or to have a type of its own.
    """
    for absent in ("ragged", "type_spec"):
        if kwargs.pop(absent, None):
            raise UnsupportedError(f"Input is dense: {absent}= was given. Pad to one shape.")
    if "batch_input_shape" in kwargs:
        kwargs["batch_shape"] = kwargs.pop("batch_input_shape")
    shape = (shape,) if isinstance(shape, (int, np.integer)) else shape
    return keras.Input(shape, batch_size, *args, name=name, **kwargs)


def _dense(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    units: Any = arguments.get("units")
    # A tensor of one number, as programs compute it from a data set.
    is_number = hasattr(units, "dtype") and np.shape(units) == ()
    return {**arguments, "units": int(units)} if is_number else arguments


_CUDNN_REFUSED = ("activation", "recurrent_activation", "dropout", "recurrent_dropout", "unroll", "use_bias")


def _cudnn(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Refuses options that cuDNN's form of a layer does not have."""
    # cuDNN has one form of each layer, the defaults'. JAX chooses cuDNN where it can.
    refused = [key for key in _CUDNN_REFUSED if key in arguments]
    if refused:
        raise ArgumentError(f"{name} has no argument {', '.join(refused)}: use {name[5:]}, which has.")
    warn_once(f"{name} is {name[5:]}, which uses cuDNN where that is possible.")
    return _recurrent(name, arguments)


BatchNormalization = alias(keras.layers.BatchNormalization, _batch_normalization)
InputLayer = alias(keras.layers.InputLayer, _input_layer)
ConvLSTM1D = alias(keras.layers.ConvLSTM1D, _convolutional_lstm)
ConvLSTM2D = alias(keras.layers.ConvLSTM2D, _convolutional_lstm)
ConvLSTM3D = alias(keras.layers.ConvLSTM3D, _convolutional_lstm)
Dense = alias(keras.layers.Dense, _dense)
Embedding = alias(keras.layers.Embedding, _embedding)
SimpleRNN = alias(keras.layers.SimpleRNN, _recurrent)
GRU = alias(keras.layers.GRU, _recurrent)
LSTM = alias(keras.layers.LSTM, _recurrent)
CuDNNGRU = alias(keras.layers.GRU, _cudnn, "CuDNNGRU")
CuDNNLSTM = alias(keras.layers.LSTM, _cudnn, "CuDNNLSTM")


@keras.saving.register_keras_serializable(package="lockstep")
class ThresholdedReLU(keras.layers.Layer):
    """Passes inputs above a threshold, and gives zero for the others.

    Args:
        theta: The threshold, not below 0.
        **kwargs: Those of every layer.

    Shapes: any in, the same out. Source: `tf.keras.layers.ThresholdedReLU`.

    Raises:
        ArgumentError: If `theta` is below 0.
    """

    def __init__(self, theta: float = 1.0, **kwargs: Argument) -> None:
        super().__init__(**kwargs)
        if not theta >= 0:
            raise ArgumentError(f"theta of ThresholdedReLU is at least 0: received {theta!r}.")
        self.supports_masking = True
        self.theta = float(theta)

    def call(self, inputs: Tensor) -> Any:
        """Returns the inputs, with zeros where they do not exceed the threshold."""
        return inputs * ops.cast(ops.greater(inputs, self.theta), inputs.dtype)

    def compute_output_shape(self, input_shape: ShapeLike) -> Any:
        """Returns the shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "theta": self.theta}


def __getattr__(name: str) -> Any:
    """Returns the layers of feature columns, text and categories."""
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
