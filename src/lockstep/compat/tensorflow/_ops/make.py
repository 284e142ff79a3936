"""Factories of TensorFlow's elementwise functions, from those of numpy, jax.numpy and keras.ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._types import Library

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

    def function(x: Tensor, name: str | None = None) -> Any:
        xp, x = dispatch.pick(x)
        return dispatch.give(xp, choose(xp)(dispatch.to_floats(xp, x) if floats else x))

    choose = _make_chooser(name, host, device)
    return describe(function, tf_name, f"Computes {what}")


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

    def function(x: Tensor, y: Tensor, name: str | None = None) -> Any:
        xp, x, y = dispatch.pick_loose(x, y)
        if floats:
            x, y = _floating(xp, x), _floating(xp, y)
        return dispatch.give(xp, choose(xp)(x, y))

    choose = _make_chooser(name, host, device)
    return describe(function, tf_name, f"Computes {what}")


def _floating(xp: Library, value: Tensor) -> Any:
    return dispatch.to_floats(xp, value) if isinstance(value, np.ndarray) else value


def _make_chooser(name: str, host: Function | None, device: Function | None) -> Callable[[Any], Function]:
    def choose(xp: Library) -> Function:
        if xp is dispatch.HOST and host is not None:
            return host
        if xp is dispatch.DEVICE and device is not None:
            return device
        # keras.ops lacks some of the functions, such as the Bessel functions.
        if xp is dispatch.SYMBOLIC and not hasattr(keras.ops, name):
            return lambda *xs: symbolic(device or getattr(dispatch.DEVICE, name), *xs)
        return getattr(xp, name)

    return choose


def symbolic(function: Function, *tensors: Tensor) -> Any:
    """Applies a function of JAX to symbolic tensors of Keras, as a layer of the model: a Lambda layer that has it."""

    # Lambda layers take one structure of tensors, so several are passed as a list.
    def call(inputs: Tensor) -> Any:
        return function(*inputs)

    return keras.layers.Lambda(call)(list(tensors))


def compute(function: Function, *tensors: Tensor) -> Any:
    """Returns `function(library, *arrays)` as a tensor; of symbolic tensors of Keras as a layer of the model."""
    xp, *arrays = dispatch.pick(*tensors)
    if xp is not dispatch.SYMBOLIC:
        return dispatch.give(xp, function(xp, *arrays))
    places = [place for place, array in enumerate(arrays) if isinstance(array, keras.KerasTensor)]

    def call(*given: Tensor) -> Any:
        every = list(arrays)
        for place, value in zip(places, given, strict=True):
            every[place] = value
        return function(dispatch.DEVICE, *every)

    return symbolic(call, *(arrays[place] for place in places))


def describe(function: Function, tf_name: str, summary: str) -> Function:
    """Returns a function under TensorFlow's name, with a docstring of a summary and its source."""
    function.__name__ = function.__qualname__ = tf_name.rpartition(".")[2]
    # help() and tracebacks show TensorFlow's name instead of this factory's.
    function.__module__ = "lockstep.compat.tensorflow"
    function.__doc__ = f"{summary}.\n\nSource: {tf_name}."
    return function
