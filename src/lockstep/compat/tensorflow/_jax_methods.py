"""TensorFlow's methods of tensors on JAX's arrays: `numpy()`, `get_shape()` and `set_shape()`.

Modules that import this package see them, as extension methods are seen in languages that have those. In the code of
other libraries, and of JAX itself, an array has no `numpy`: some take a value with that method for TensorFlow's.
README.md has them in its table of all changes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, FunctionType, ModuleType
from typing import NoReturn

import numpy as np
from jax import core
from jax._src.array import ArrayImpl  # `jax.Array` is an abstract class, whose attributes arrays do not inherit.

from lockstep._types import Array
from lockstep.compat.tensorflow._spec import TensorShape
from lockstep.compat.tensorflow._tensor import check_shape
from lockstep.errors import UnsupportedError

_PACKAGE = "lockstep.compat"
_importers: set[str] = set()


def install() -> None:
    """Adds the methods where JAX has none of that name."""
    for cls, numpy in ((ArrayImpl, _numpy), (core.Tracer, _refuse_values)):
        for name, method in (("numpy", numpy), ("get_shape", _get_shape), ("set_shape", check_shape)):
            # A JAX that gets such a method itself keeps it.
            if not hasattr(cls, name):
                setattr(cls, name, ExtensionMethod(name, method))


class ExtensionMethod:
    """A method that is an attribute only in modules that import `lockstep.compat`.

    Args:
        name: The method's name.
        method: The function.
    """

    def __init__(self, name: str, method: Callable[..., object]) -> None:
        self.name = name
        self.method = method

    def __get__(self, array: Array, owner: type) -> Callable[..., object]:
        # `hasattr` and `getattr` are C functions without a frame: the frame above is of the code that asks.
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if not imports_compat(frame):
            raise AttributeError(
                f"{owner.__name__!r} object has no attribute {self.name!r}. Modules that import "
                f"{_PACKAGE}.tensorflow see TensorFlow's methods of JAX's arrays; "
                f"{frame.f_globals.get('__name__')} does not import it. Import it there, or use numpy.asarray(x)."
            )
        return self.method if array is None else self.method.__get__(array)


def note_import(frame: FrameType) -> None:
    """Remembers that a module has imported a name of Keras through this package.

    `from lockstep.compat.tensorflow.keras.layers import Dense` leaves Keras' own class in the module, which does not
    tell where it has come from.
    """
    _importers.add(frame.f_globals.get("__name__", ""))


def imports_compat(frame: FrameType) -> bool:
    """Returns whether the module whose code a frame runs, or this function of it, imports `lockstep.compat`."""
    if frame.f_globals.get("__name__") in _importers:
        return True
    # The scan takes 10 to 30 microseconds, as much as the copy from the device that follows. Of a function's own names
    # modules alone count: JAX's frames hold the functions of this package that they trace.
    values = [*frame.f_globals.values(), *(v for v in frame.f_locals.values() if isinstance(v, ModuleType))]
    return any(_home(value).startswith(_PACKAGE) for value in values)


def _home(value: object) -> str:
    """Returns the module that a value is, or comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    return str((value if isinstance(value, (type, FunctionType)) else type(value)).__module__)


def _numpy(self: Array) -> np.ndarray | np.generic:
    """Returns the values as a numpy array, or a single value as a numpy scalar."""
    return np.asarray(self)[()]


def _get_shape(self: Array) -> TensorShape:
    """Returns the shape."""
    return TensorShape(self.shape)


def _refuse_values(self: Array) -> NoReturn:
    raise UnsupportedError(
        "numpy() needs values, and this code is being compiled by JAX, which runs it once on placeholders. Compute "
        "with tf or keras.ops functions instead, print with tf.print, or wrap a function of numpy in tf.py_function."
    )
