"""Makes TensorFlow's elementwise functions out of the functions of numpy, jax.numpy and keras.ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from lockstep.compat.tensorflow._ops import dispatch

Function = Callable[..., Any]


def unary(
    tf_name: str,
    what: str,
    name: str,
    *,
    host: Function | None = None,
    device: Function | None = None,
    floats: bool = True,
) -> Function:
    """Returns a function of one tensor.

    Args:
        tf_name: TensorFlow's name of it, for its documentation.
        what: What it computes, for its documentation.
        name: The name that numpy, jax.numpy and keras.ops have for it.
        host: numpy's function, if it has another name.
        device: jax.numpy's function, if it has another name.
        floats: Whether integers are taken as float32.
    """

    def function(x: Any, name: str | None = None) -> Any:
        xp, x = dispatch.pick(x)
        return dispatch.give(xp, chosen(xp)(dispatch.floating(xp, x) if floats else x))

    chosen = _chooser(name, host, device)
    return _described(function, tf_name, what)


def binary(
    tf_name: str,
    what: str,
    name: str,
    *,
    host: Function | None = None,
    device: Function | None = None,
    floats: bool = False,
) -> Function:
    """Returns a function of two tensors, which broadcasts; arguments as of `unary`."""

    def function(x: Any, y: Any, name: str | None = None) -> Any:
        xp, x, y = dispatch.pick_loose(x, y)
        if floats:
            x, y = _floating(xp, x), _floating(xp, y)
        return dispatch.give(xp, chosen(xp)(x, y))

    chosen = _chooser(name, host, device)
    return _described(function, tf_name, what)


def _floating(xp: Any, value: Any) -> Any:
    return dispatch.floating(xp, value) if isinstance(value, np.ndarray) else value


def _chooser(name: str, host: Function | None, device: Function | None) -> Callable[[Any], Function]:
    def chosen(xp: Any) -> Function:
        if xp is dispatch.HOST and host is not None:
            return host
        if xp is dispatch.DEVICE and device is not None:
            return device
        if xp is dispatch.SYMBOLIC and not hasattr(keras.ops, name):
            return lambda *xs: symbolic(device or getattr(dispatch.DEVICE, name), *xs)
        return getattr(xp, name)

    return chosen


def symbolic(function: Function, *tensors: Any) -> Any:
    """Applies a function of JAX to symbolic tensors of Keras, as a layer of the model: a Lambda layer that has it."""

    def call(inputs: Any) -> Any:
        return function(*inputs)

    return keras.layers.Lambda(call)(list(tensors))


def _described(function: Function, tf_name: str, what: str) -> Function:
    function.__name__ = function.__qualname__ = tf_name.rpartition(".")[2]
    function.__module__ = "lockstep.compat.tensorflow"
    function.__doc__ = f"Computes {what}.\n\nSource: {tf_name}."
    return function
