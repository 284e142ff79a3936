"""Gives JAX's arrays the methods that TensorFlow programs call on tensors, once this package is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import core
from jax._src.array import ArrayImpl  # The class that `jax.Array` stands for.

from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._tensor import check_shape
from lockstep.errors import UnsupportedError


def install() -> None:
    """Adds `numpy()`, `get_shape()` and `set_shape()` where JAX has no such method."""
    for cls, numpy in ((ArrayImpl, _numpy), (core.Tracer, _no_value)):
        for name, method in (("numpy", numpy), ("get_shape", _get_shape), ("set_shape", check_shape)):
            if not hasattr(cls, name):
                setattr(cls, name, method)


def _numpy(self: Any) -> Any:
    """Returns the values as a numpy array, or a single value as a numpy scalar."""
    return np.asarray(self)[()]


def _get_shape(self: Any) -> TensorShape:
    """Returns the shape."""
    return TensorShape(self.shape)


def _no_value(self: Any) -> Any:
    raise UnsupportedError(
        "numpy() needs values, and this code is being compiled by JAX, which runs it once on "
        "placeholders. Compute with "
        "tf or keras.ops functions instead, print with tf.print, or wrap a function of numpy in tf.py_function."
    )
