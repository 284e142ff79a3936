"""Tensors on the host: numpy arrays with the methods that TensorFlow's have."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._types import ArrayLike
from lockstep.compat.tensorflow._composite import CompositeTensor
from lockstep.compat.tensorflow._error_kinds import ArgumentIndexError
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._types import Argument, ShapeLike
from lockstep.errors import ArgumentError

# JAX's rule without jax_enable_x64. The host follows it, so that a function gives the same types compiled or not.
_NARROW = {np.dtype(w): np.dtype(n) for w, n in (("f8", "f4"), ("i8", "i4"), ("u8", "u4"), ("c16", "c8"))}
# With an operand of another class the operator is left to that class: JAX's arrays, Keras' variables.
_HOST = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, list, tuple)


class HostTensor(np.ndarray):
    """A numpy array that has `numpy()`, `get_shape()` and `set_shape()`, and computes with JAX's type rules.

    It cannot be changed: `x += 1` makes a new one. Text is an array of `bytes` objects, and compares with `str` too.

    Attributes:
        on_device: The values as an array on the device, if `device_array` has made one that stays.

    Source: tf.Tensor.
    """

    on_device: jax.Array | None = None

    @property
    def op(self) -> Any:
        """Returns the operation that it is of, in a model_fn."""
        from lockstep.compat.tensorflow._ops.named import op_of

        return op_of(self)

    @property
    def shape(self) -> TensorShape:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The size of each dimension."""
        # Through ndarray's descriptor: `self.shape` would ask this property again.
        return TensorShape(np.ndarray.shape.__get__(self))

    @shape.setter
    def shape(self, value: ArrayLike) -> None:
        np.ndarray.shape.__set__(self, value)  # pyright: ignore[reportDeprecated]

    @property
    def device(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The device that holds it: the host's."""
        return device_name(None)

    def ref(self) -> Reference:
        """Returns a reference that can be put into sets and be a key of dicts."""
        return Reference(self)

    experimental_ref = ref

    def cpu(self) -> HostTensor:
        """Returns the tensor itself."""
        return self

    def numpy(self) -> Any:
        """Returns a copy as a numpy array, or for a single value a numpy scalar or `bytes`."""
        # A copy, as in TensorFlow: a program may change it, and not the tensor.
        return _base(self)[()] if self.ndim == 0 else _base(self).copy()

    def device_array(self) -> Any:
        """Returns the values as a compiled function takes them: on the device where they can be kept, else on the host.

        They are kept on the device from the first call on if nothing can change them here: a function that is called
        with the same tensor again transfers nothing (17 of 100 us of a small step).
        """
        if self.on_device is not None:
            return self.on_device
        found = _base(self)
        if _is_constant(found):
            array = jnp.asarray(found)
            if array.dtype == found.dtype:
                self.on_device = array
                return array
        return found

    def get_shape(self) -> TensorShape:
        """Returns the shape."""
        return self.shape

    def set_shape(self, shape: ShapeLike) -> None:
        """Checks that the tensor has this shape, of which `None` sizes are not checked.

        Raises:
            ArgumentError: If it has not.
        """
        check_shape(self, shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: ArrayLike, **kwargs: Argument) -> Any:
        # NotImplemented lets numpy ask the other operand, an array of JAX or a variable.
        if not all(isinstance(i, _HOST) for i in inputs) or "out" in kwargs:
            return NotImplemented
        watched = [recording.stands_for(i) for i in inputs]
        if method == "__call__" and any(w is not None for w in watched):
            given = [i if w is None else w for i, w in zip(inputs, watched, strict=True)]
            return getattr(jnp, ufunc.__name__)(*given, **kwargs)
        return from_numpy(getattr(ufunc, method)(*map(_operand, inputs), **kwargs))

    @property
    def __jax_array__(self) -> Callable[[], Any]:
        # Only of a tensor that a tape watches; JAX takes all others as numpy's arrays.
        watched = recording.stands_for(self)
        if watched is None:
            raise AttributeError("__jax_array__")
        return lambda: watched

    def __getitem__(self, key: ArrayLike) -> Any:
        watched = recording.stands_for(self)
        if watched is not None:
            return watched[_key(key)]
        try:
            return as_host(_base(self)[_key(key)])
        except IndexError as error:
            raise ArgumentIndexError(f"An index must be within the shape {self.shape}: {error}.") from error

    # TensorFlow's tensors are immutable, and JAX may share the memory of this one.
    def __setitem__(self, key: ArrayLike, value: ArrayLike) -> None:
        raise TypeError("A tensor cannot be changed. Use tf.tensor_scatter_nd_update, tf.where, or a numpy array.")

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("A tensor of no dimensions has no elements to iterate over. Use its numpy().")
        return (as_host(e) for e in _base(self))

    def __float__(self) -> float:
        # Of one element, whatever its shape; numpy 2 takes no dimensions alone.
        return float(_base(self).item())

    def __int__(self) -> int:
        return int(_base(self).item())

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec)

    def __contains__(self, value: ArrayLike) -> bool:
        return bool(np.any(_base(self) == _operand(value)))

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={self.shape}, dtype={_type_name(self)}, numpy={_values_text(self)}>"

    def __str__(self) -> str:
        # A matrix begins on a line of its own, as in TensorFlow.
        text = str(self.numpy())
        start = "\n" if "\n" in text else ""
        return f"tf.Tensor({start}{text}, shape={self.shape}, dtype={_type_name(self)})"


class Reference:
    """A tensor or variable as a key: equal references are of the same object. Source: tf.Tensor.ref."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def deref(self) -> Any:
        """Returns the tensor or variable."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._wrapped is other._wrapped

    def __hash__(self) -> int:
        return id(self._wrapped)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._wrapped!r}>"


def device_name(device: Any) -> str:
    """Returns TensorFlow's name of a device of JAX, `None` for the host, as "/job:localhost/.../device:CPU:0"."""
    kind = getattr(device, "platform", "cpu").upper()
    number = getattr(device, "local_hardware_id", None)
    return f"/job:localhost/replica:0/task:0/device:{kind}:{number or 0}"


def _values_text(value: np.ndarray[Any, Any]) -> str:
    # numpy 2 writes np.float32(1.5) for a scalar, TensorFlow 1.5.
    if value.ndim:
        # A matrix begins on a line of its own, so that its columns stand below each other.
        text = repr(_base(value))
        return f"\n{text}" if "\n" in text else text
    single = _base(value)[()]
    return str(single) if isinstance(single, np.generic) else repr(single)


def _type_name(value: np.ndarray[Any, Any]) -> str:
    return "string" if value.dtype == object else value.dtype.name


def _base(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.view(np.ndarray)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Marks an array that nobody else has as one that cannot be changed, as TensorFlow's `np.asarray(tensor)`."""
    array.flags.writeable = False
    return array


def _is_constant(array: object) -> bool:
    """Returns whether nothing can change the elements: neither this array nor the one whose memory it views."""
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        if array.base is None:
            return True
        array = array.base
    return False


def _key(key: ArrayLike) -> Any:
    """Returns an index as plain arrays."""
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    return _base(key) if isinstance(key, HostTensor) else key


def _operand(value: ArrayLike) -> Any:
    """Returns an operand as numpy computes with it; text becomes bytes."""
    if isinstance(value, np.ndarray):
        return to_text(value) if value.dtype.kind in "SU" else _base(value)
    if isinstance(value, (str, bytes)):
        return to_text(value)
    return constant_array(value) if isinstance(value, (list, tuple)) else value


def to_text(value: ArrayLike) -> np.ndarray[Any, Any]:
    """Returns text (`str`, `bytes`, lists or arrays of them) as an array of `bytes` objects."""
    if type(value) is bytes:
        return np.array(value, object)
    array = _base(value) if isinstance(value, np.ndarray) else np.array(value, object)
    flat = [_as_bytes(e) for e in array.ravel()]
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(np.ndarray.shape.__get__(array))


def _as_bytes(element: Any) -> Any:
    # In a list of tensors each is an array of one text.
    if isinstance(element, np.ndarray) and element.ndim == 0:
        element = element.item()
    return element.encode() if isinstance(element, str) else bytes(element) if isinstance(element, bytes) else element


def narrow(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns 64-bit values as 32-bit ones, as JAX computes with, unless `jax_enable_x64` is set.

    Raises:
        ArgumentError: If integers do not fit; JAX would wrap them around.
    """
    # Floats lose digits, as in JAX; integers must fit.
    target = _NARROW.get(value.dtype)
    if target is None or jax.config.read("jax_enable_x64"):
        return value
    result = value.astype(target)
    if target.kind in "iu" and not np.array_equal(result, value):
        raise ArgumentError(
            f"JAX computes with 32-bit integers, and values must fit into them. Received {value.max()} (smallest "
            f'{value.min()}). Set jax.config.update("jax_enable_x64", True) right after the imports for 64 bits.'
        )
    return result


def as_host(value: ArrayLike) -> HostTensor:
    """Returns `value` (an array, a number, `bytes`) as a tensor of the same type; an array is not copied."""
    if isinstance(value, HostTensor):
        return value
    if not isinstance(value, np.ndarray):
        value = to_text(value) if isinstance(value, (str, bytes)) else np.asarray(value)
    return (to_text(value) if value.dtype.kind in "SU" else value).view(HostTensor)


def from_numpy(value: ArrayLike) -> Any:
    """Returns what numpy computed (an array, or a tuple or list of them) as tensors of 32 bits."""
    if isinstance(value, (tuple, list)):
        return type(value)([from_numpy(v) for v in value])
    return as_host(narrow(np.asarray(value)))


def constant_array(value: ArrayLike) -> np.ndarray[Any, Any]:
    """Returns Python values as an array of TensorFlow's types: float32, int32, bool, text; arrays keep theirs."""
    if isinstance(value, np.ndarray):
        return to_text(value) if value.dtype.kind in "SU" else _base(value)
    if isinstance(value, np.generic):
        return to_text(value.item()) if value.dtype.kind in "SU" else np.asarray(value)
    array = _rectangular(value)
    if array.dtype.kind in "SUO":
        return to_text(array)
    if isinstance(_first_leaf(value), (np.ndarray, np.generic)):
        return array
    # Integers that need 64 bits keep them until they are computed with.
    if array.dtype.kind in "iu" and array.size and not (array.min() >= -(2**31) and array.max() < 2**31):
        return array
    return array.astype(_NARROW.get(array.dtype, array.dtype))


def _rectangular(value: ArrayLike) -> np.ndarray[Any, Any]:
    if isinstance(value, (str, bytes)) or _first_leaf(value).__class__ in (str, bytes):
        return np.array(value, object)  # Its own type would cut trailing zero bytes off.
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"A tensor must be rectangular: {error}. Received: {value!r}.") from error


def _first_leaf(value: ArrayLike) -> Any:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value


def as_tensor(value: ArrayLike) -> Any:
    """Views an array or a single value of the host as a tensor that has TensorFlow's methods; others pass unchanged."""
    if isinstance(value, (np.ndarray, np.generic, str, bytes)):
        return as_host(value)
    return as_host(constant_array(value)) if isinstance(value, (bool, int, float, complex)) else value


def check_shape(value: ArrayLike, shape: ShapeLike) -> None:
    """Raises `ArgumentError` unless `value` can have `shape`; `None` instead of a shape fits everything."""
    if shape is None:
        return
    actual = TensorShape(np.shape(value))
    if not actual.is_compatible_with(shape):
        raise ArgumentError(f"The tensor must have shape {TensorShape(shape)}. Received one of shape {actual}.")


def _binary(name: str, reflected: bool) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def method(self: Any, other: ArrayLike) -> Any:
        # A tensor that a tape watches is computed with by JAX, which records it.
        watched = recording.stands_for(self), recording.stands_for(other)
        if watched[0] is not None or watched[1] is not None:
            operands = (_operand(v) if isinstance(v, _HOST) else v for v in (self, other))
            a, b = (o if w is None else w for o, w in zip(operands, watched, strict=True))
            return function(b, a) if reflected else function(a, b)
        if not isinstance(other, _HOST):
            return NotImplemented
        a, b = _operand(self), _operand(other)
        try:
            return from_numpy(function(b, a) if reflected else function(a, b))
        except ValueError as error:
            raise ArgumentError(f"Shapes must go together in {name}: {error}.") from error

    method.__doc__ = f"Computes `operator.{name}` element by element."
    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    _plain = _name.rstrip("_")
    setattr(HostTensor, f"__{_plain}__", _binary(_name, reflected=False))
    setattr(HostTensor, f"__r{_plain}__", _binary(_name, reflected=True))
    # Not in place, which numpy's would be: `a += b` makes a new tensor.
    setattr(HostTensor, f"__i{_plain}__", _binary(_name, reflected=False))
# Comparisons go element by element, as in TensorFlow 2.
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(HostTensor, f"__{_name}__", _binary(_name, reflected=False))


class _TensorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (HostTensor, jax.Array))


class Tensor(metaclass=_TensorType):
    """Class of JAX's arrays and of tensors on the host, for `isinstance(x, tf.Tensor)`. Source: tf.Tensor."""


def is_tensor(x: ArrayLike) -> bool:
    """Returns whether `x` is a tensor, a variable or a symbolic tensor of Keras. Source: tf.is_tensor."""
    return isinstance(x, (Tensor, keras.KerasTensor, keras.Variable, CompositeTensor))
