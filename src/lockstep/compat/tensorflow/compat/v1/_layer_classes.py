"""TensorFlow 1's layers as classes: those of Keras, with TensorFlow 1's order of arguments and `apply`."""

from __future__ import annotations

from typing import Any

import keras

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._types import Argument, DTypeLike, Initializer, ShapeLike
from lockstep.errors import ArgumentError, UnsupportedError

_WINDOW = ("filters", "kernel_size", "strides", "padding", "data_format")
_CONVOLUTION = (*_WINDOW, "dilation_rate", "activation", "use_bias")
# Transposed convolutions have no dilation_rate in TensorFlow 1's order.
_TRANSPOSED = (*_WINDOW, "activation", "use_bias")
_SEPARABLE = (*_WINDOW, "dilation_rate", "depth_multiplier", "activation", "use_bias")
_NORMALIZATION = ("axis", "momentum", "epsilon", "center", "scale")
# As in tf.layers, whose pooling functions want strides.
_POOLING = ("pool_size", "strides", "padding", "data_format")

# What may follow the inputs, or stand in a constructor, by position.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "Dense": ("units", "activation", "use_bias"),
    "Flatten": ("data_format",),
    "Dropout": ("rate", "noise_shape", "seed"),
    "BatchNormalization": _NORMALIZATION,
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), _CONVOLUTION),
    **dict.fromkeys(("Conv2DTranspose", "Conv3DTranspose"), _TRANSPOSED),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), _SEPARABLE),
    **{f"{kind}Pooling{n}D": _POOLING for kind in ("Max", "Average") for n in (1, 2, 3)},
}
# Only in training; TensorFlow 1 takes a layer's `training` for False where Keras asks its model.
_OF_TRAINING = ("Dropout", "BatchNormalization")
_DEFAULTS = {"Dropout": {"rate": 0.5}}
# Values that ask for nothing that Keras' layers do not do.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "fused": (None, True, False),
    "renorm": (None, False),
    "renorm_clipping": (None,),
    "renorm_momentum": (None, 0.99),
    "virtual_batch_size": (None,),
    "adjustment": (None,),
    "_scope": (None,),
    "_reuse": (None, False),
}


def keras_options(kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a layer of TensorFlow 1 as those of Keras' layer.

    Raises:
        ArgumentError: If there are too many by position.
        UnsupportedError: For what Keras' layer cannot do.
    """
    names = ARGUMENTS[kind]
    if len(args) > len(names):
        raise ArgumentError(
            f"{kind} takes {', '.join(names)} by position. Received {len(args)}. Give the others by name."
        )
    given = {**_DEFAULTS.get(kind, {}), **dict(zip(names, args, strict=False)), **kwargs}
    for name, harmless in _WITHOUT_EFFECT.items():
        if name in given and given.pop(name) not in harmless:
            raise UnsupportedError(
                f"tf.compat.v1.layers.{kind} is Keras' layer, which has no {name}. Received: {kwargs.get(name)!r}. "
                "Leave it out."
            )
    # None means the default, which Keras' layers know, too.
    return {name: value for name, value in given.items() if value is not None or name in ("activation", "seed")}


class Layer(keras.layers.Layer):
    """A layer with TensorFlow 1's methods; see keras.layers.Layer. Source: tf.compat.v1.layers.Layer."""

    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: DTypeLike = None, **kwargs: Argument
    ) -> None:
        super().__init__(trainable=trainable, name=name, dtype=dtype, **kwargs)

    def apply(self, inputs: Tensor, *args: Argument, **kwargs: Argument) -> Any:
        """Returns the layer's outputs, as a call does."""
        return self(inputs, *args, **kwargs)

    def add_variable(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        name: str,
        shape: ShapeLike,
        dtype: DTypeLike = None,
        initializer: Initializer = None,
        regularizer: Initializer = None,
        trainable: bool = True,
        **kwargs: Argument,
    ) -> Any:
        """Returns a new variable of the layer, as `add_weight` does."""
        return self.add_weight(
            shape=shape,
            dtype=dtype,
            initializer=initializer or "glorot_uniform",
            regularizer=regularizer,
            trainable=trainable,
            name=name,
            **kwargs,
        )


def layer_class(kind: str) -> Any:
    """Returns the class of TensorFlow 1 for a layer of Keras."""
    base: Any = getattr(keras.layers, kind)
    is_of_training = kind in _OF_TRAINING

    def __init__(self: Any, *args: Argument, **kwargs: Argument) -> None:
        base.__init__(self, **keras_options(kind, args, kwargs))

    def __call__(self: Any, inputs: Tensor, *args: Argument, **kwargs: Argument) -> Any:
        if is_of_training:
            training = args[0] if args else kwargs.pop("training", False)
            args, kwargs = (), {**kwargs, "training": bool(training)}
        # Numbers of the host, as features may be, become the device's.
        symbolic = isinstance(inputs, keras.KerasTensor)
        return base.__call__(self, inputs if symbolic else dispatch.to_array(dispatch.DEVICE, inputs), *args, **kwargs)

    members = {
        "__init__": __init__,
        "__call__": __call__,
        "apply": Layer.apply,
        "__doc__": (
            f"Keras' layer of this name, with TensorFlow 1's order of arguments: {', '.join(ARGUMENTS[kind])}, then "
            f"those of keras.layers.{kind} by name.\n\nSource: tf.compat.v1.layers.{kind}."
        ),
        "__module__": "lockstep.compat.tensorflow.compat.v1.layers",
    }
    return type(kind, (base,), members)
