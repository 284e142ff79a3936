"""TensorFlow's attributes of tensors on the arrays of JAX and the symbolic tensors and variables of Keras.

Modules that import this package see them. README.md has them in its table of all changes.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dis import opmap
from types import FrameType
from typing import Any, NoReturn

import jax
import keras
import numpy as np
from jax import core
from jax._src.array import ArrayImpl  # `jax.Array` is an abstract class, whose attributes arrays do not inherit.

from lockstep._types import Array
from lockstep.compat.tensorflow._dtypes import dtype_of
from lockstep.compat.tensorflow._ops.named import name_of, op_of
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._shards import variables_of, with_shards
from lockstep.compat.tensorflow._tensor import HostTensor, Reference, check_shape, device_name
from lockstep.compat.tensorflow._visibility import PACKAGE, imports_compat, libraries, sees_tensorflow
from lockstep.compat.tensorflow._visibility import note_import as note_import
from lockstep.errors import UnsupportedError

# In Python 3.11 an instruction of its own loads what is called as a method; later a bit of LOAD_ATTR tells.
_LOAD_METHOD = opmap.get("LOAD_METHOD") if sys.version_info < (3, 12) else None
_LOAD_ATTR = opmap["LOAD_ATTR"]


def install() -> None:
    """Adds TensorFlow's attributes where JAX and Keras have none of that name, and changes the types of some."""
    for cls, numpy in ((ArrayImpl, _numpy), (core.Tracer, _refuse_values)):
        for name, method in (
            *(("numpy", numpy), ("get_shape", _get_shape), ("set_shape", check_shape), ("ref", Reference)),
            *(("experimental_ref", Reference), ("cpu", _identity)),
        ):
            # A JAX that gets such a method itself keeps it.
            if not hasattr(cls, name):
                setattr(cls, name, ExtensionMethod(name, method))
    for cls in (ArrayImpl, core.Tracer, keras.KerasTensor, keras.Variable):
        _change(cls, "shape", TensorShape)
        _change(cls, "dtype", dtype_of)
    for name, method in (("get_shape", _get_shape), ("set_shape", check_shape), ("ref", Reference)):
        setattr(keras.KerasTensor, name, ExtensionMethod(name, method))
    keras.Variable.ref = ExtensionMethod("ref", Reference)  # pyright: ignore[reportAttributeAccessIssue]
    for cls in (ArrayImpl, core.Tracer):
        cls.name = ExtensionProperty("name", name_of)  # pyright: ignore[reportAttributeAccessIssue]
        cls.op = ExtensionProperty("op", op_of)  # pyright: ignore[reportAttributeAccessIssue]
    _change(ArrayImpl, "device", device_name)
    _take_single("__float__")
    _take_single("__int__")
    ArrayImpl.backing_device = ExtensionProperty(  # pyright: ignore[reportAttributeAccessIssue]
        "backing_device", lambda array: device_name(array.device)
    )
    _change(HostTensor, "dtype", dtype_of, np.ndarray.dtype)
    _make_callable(keras.Variable, "value")
    _change(keras.layers.Layer, "weights", with_shards)
    keras.Variable.variables = ExtensionProperty(  # pyright: ignore[reportAttributeAccessIssue]
        "variables", variables_of
    )
    _remember_slices(keras.Variable)
    _advise_in_errors()


def _advise_in_errors() -> None:
    """Lets JAX's errors about values that are not known yet say what a TensorFlow program writes instead."""
    from lockstep.compat.tensorflow._functions.refusals import advise

    base: Any = next(c for c in jax.errors.UnexpectedTracerError.__mro__ if c.__name__ == "_JAXErrorMixin")
    original = base.__init__

    @functools.wraps(original)
    def begin(self: Any, message: str) -> None:
        original(self, message)
        advise(self)

    base.__init__ = begin


def _change(cls: Any, name: str, convert: Callable[[Any], Any], original: Any = None) -> None:
    """Makes a property give modules that import this package what `convert` makes of its value."""
    # Keras' classes derive from others of its own.
    cls = cls if original else next(c for c in cls.__mro__ if name in vars(c))
    original = original or vars(cls)[name]
    # JAX's are properties of Python, too; HostTensor's is numpy's, in C.
    read = getattr(original, "fget", None) or original.__get__
    get_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]

    def get(self: Any) -> Any:
        frame = get_frame(1)
        # Libraries first: they ask far more often than programs do.
        if id(frame.f_globals) in libraries or not sees_tensorflow(frame):
            return read(self)
        return convert(read(self))

    setter = getattr(original, "fset", None)
    setattr(cls, name, property(get, setter, doc=getattr(original, "__doc__", None)))


def _take_single(name: str) -> None:
    """Lets an array of one element be a number of Python, whatever its shape, as `"%.1f" % x` asks for."""
    original = getattr(ArrayImpl, name)
    get_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]

    @functools.wraps(original)
    def convert(self: Any) -> Any:
        if np.ndim(self) and self.size == 1 and sees_tensorflow(get_frame(1)):
            self = self.reshape(())
        return original(self)

    setattr(ArrayImpl, name, convert)


# Parts of variables that a program has read, by their id: they can be assigned to as long as they live.
_parts: dict[int, tuple[Any, Any, Any]] = {}


def _remember_slices(cls: Any) -> None:
    """Lets a program assign to a part of a variable: `v[0, 1].assign(3.0)`."""
    cls = next(c for c in cls.__mro__ if "__getitem__" in vars(c))
    original = cls.__getitem__
    get_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]

    @functools.wraps(original)
    def get(self: Any, key: Any) -> Any:
        value, frame = original(self, key), get_frame(1)
        if id(frame.f_globals) not in libraries and sees_tensorflow(frame):
            number = id(value)
            _parts[number] = weakref.ref(value, lambda _: _parts.pop(number, None)), self, key
        return value

    cls.__getitem__ = get
    for owner in (ArrayImpl, core.Tracer):
        owner.assign = ExtensionMethod("assign", _assign_part)  # pyright: ignore[reportAttributeAccessIssue]


def _assign_part(part: Array, value: Any, *_: object, **__: object) -> Any:
    """Changes the part of a variable that `part` was read as; returns the variable."""
    found = _parts.get(id(part))
    if found is None or found[0]() is not part:
        raise AttributeError("A tensor has no assign: variables have, and their parts, as in v[0].assign(1.0).")
    _, variable, key = found
    variable.assign(variable.value.at[key].set(value))
    return variable


def _make_callable(cls: Any, name: str) -> None:
    """Makes a property a method for modules that import this package, where they call it."""
    cls = next(c for c in cls.__mro__ if name in vars(c))
    original = vars(cls)[name]
    read, get_frame = original.fget, sys._getframe  # pyright: ignore[reportPrivateUsage]

    def get(self: Any) -> Any:
        value, frame = read(self), get_frame(1)
        # Keras asks at every step, and reading an instruction copies the code: libraries first.
        if id(frame.f_globals) in libraries or not sees_tensorflow(frame):
            return value
        return (lambda: value) if _is_method_call(frame) else value

    setattr(cls, name, property(get, original.fset, doc=original.__doc__))


def _is_method_call(frame: FrameType) -> bool:
    """Returns whether a frame is at `x.name(...)`, and not at `x.name` or `getattr(x, name)`."""
    code, here = frame.f_code.co_code, frame.f_lasti
    if _LOAD_METHOD is not None:
        return code[here] == _LOAD_METHOD
    return code[here] == _LOAD_ATTR and bool(code[here + 1] & 1)


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
                f"{PACKAGE}.tensorflow see TensorFlow's methods of JAX's arrays; "
                f"{frame.f_globals.get('__name__')} does not import it. Import it there, or use numpy.asarray(x)."
            )
        return self.method if array is None else lambda *args, **kwargs: self.method(array, *args, **kwargs)


class ExtensionProperty(ExtensionMethod):
    """Adds an attribute that `method` computes, as `ExtensionMethod` adds a method."""

    def __get__(self, array: Array, owner: type) -> Any:
        found = super().__get__(array, owner)
        return found if array is None else found()


def _numpy(self: Array) -> np.ndarray | np.generic:
    """Returns a copy of the values as a numpy array, or a single value as a numpy scalar."""
    # A copy, as in TensorFlow: numpy's view of an array of JAX cannot be written to.
    return np.array(self)[()]


def _identity(self: Array) -> Array:
    """Returns the tensor itself."""
    return self


def _get_shape(self: Array) -> TensorShape:
    """Returns the shape."""
    return TensorShape(self.shape)


def _refuse_values(self: Array) -> NoReturn:
    raise UnsupportedError(
        "numpy() needs values, and this code is being compiled by JAX, which runs it once on placeholders. Compute "
        "with tf or keras.ops functions instead, print with tf.print, or wrap a function of numpy in tf.py_function."
    )
