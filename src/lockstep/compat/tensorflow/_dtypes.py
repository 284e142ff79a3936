"""TensorFlow's types of elements, as values that numpy, JAX and Keras take as `dtype=`."""

from __future__ import annotations

import builtins as _builtins
from typing import Any

import ml_dtypes
import numpy as np

from lockstep.compat.tensorflow._error_kinds import ArgumentTypeError
from lockstep.compat.tensorflow._types import DTypeLike

__all__ = ["DType", "as_dtype", "bfloat16", "bool", "complex128", "complex64", "double", "float16", "float32"]
__all__ += ["float64", "half", "int16", "int32", "int64", "int8", "string", "uint16", "uint32", "uint64", "uint8"]

_Bool = _builtins.bool  # The name is taken below, as TensorFlow's.


class DType:
    """The type of a tensor's elements.

    numpy and JAX read its `dtype`, Keras its `__name__`, so it can be given as `dtype=` to all three. It equals the
    numpy type, the name and the Python type that mean the same. Text is held as Python `bytes` in arrays of objects.

    Source: tf.dtypes.DType.
    """

    __slots__ = ("_name", "dtype")

    def __init__(self, dtype: DTypeLike, name: str | None = None) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._name = name or self.dtype.name

    @property
    def name(self) -> str:
        """The name, such as "float32"."""
        return self._name

    @property
    # Keras reads the name of a type here.
    def __name__(self) -> str:
        return self._name

    @property
    def as_numpy_dtype(self) -> Any:
        """The numpy scalar class, such as `np.float32`; `object` for text."""
        return object if self.dtype == object else self.dtype.type

    @property
    def base_dtype(self) -> DType:
        """The type itself: there are no types of references."""
        return self

    @property
    def as_datatype_enum(self) -> int:
        """The number that TensorFlow's files have for it."""
        return _ENUM[self._name]

    @property
    def is_numpy_compatible(self) -> _Bool:
        """Tells whether numpy has arrays of it: always."""
        return True

    @property
    def is_quantized(self) -> _Bool:
        """Tells whether it is a type of quantized numbers: there are none."""
        return False

    @property
    def real_dtype(self) -> DType:
        """The type of the real part."""
        return as_dtype(np.result_type(np.real(np.zeros(0, self.dtype)))) if self.is_complex else self

    @property
    def is_floating(self) -> _Bool:
        """Tells whether it is a real floating-point type."""
        # numpy does not count ml_dtypes' bfloat16 among the floating types.
        return self.dtype == _BFLOAT16 or np.issubdtype(self.dtype, np.floating)

    @property
    def is_integer(self) -> _Bool:
        """Tells whether it is a type of integers, signed or not."""
        return np.issubdtype(self.dtype, np.integer)

    @property
    def is_unsigned(self) -> _Bool:
        """Tells whether it is a type of unsigned integers."""
        return np.issubdtype(self.dtype, np.unsignedinteger)

    @property
    def is_complex(self) -> _Bool:
        """Tells whether it is a type of complex numbers."""
        return np.issubdtype(self.dtype, np.complexfloating)

    @property
    def is_bool(self) -> _Bool:
        """Tells whether it is the type of truth values."""
        return self.dtype == np.bool_

    @property
    def is_numeric(self) -> _Bool:
        """Tells whether it is a type of numbers; truth values are none."""
        return self.is_floating or self.is_integer or self.is_complex

    @property
    def size(self) -> int:
        """Bytes per element; 0 for text, whose elements differ in size."""
        return 0 if self.dtype == object else self.dtype.itemsize

    @property
    def max(self) -> Any:
        """The largest finite value."""
        return self._limit("max")

    @property
    def min(self) -> Any:
        """The smallest finite value."""
        return self._limit("min")

    @property
    def limits(self) -> tuple[Any, Any]:
        """The smallest and the largest value."""
        return self.min, self.max

    def is_compatible_with(self, other: DTypeLike) -> _Bool:
        """Returns whether `other` is the same type."""
        return self == as_dtype(other)

    def is_subtype_of(self, other: DTypeLike) -> _Bool:
        """Returns whether `other` is the same type: none is a part of another."""
        return self == other

    def most_specific_common_supertype(self, others: Any) -> DType | None:
        """Returns this type if all others are it, else `None`."""
        return self if all(self == other for other in others) else None

    def _limit(self, which: str) -> Any:
        if self.is_floating:
            # numpy's finfo does not know bfloat16.
            return self.dtype.type(getattr(ml_dtypes.finfo(self.dtype), which))
        if self.is_integer:
            return getattr(np.iinfo(self.dtype), which)
        # TensorFlow's limits of truth values.
        if self.is_bool:
            return which == "max"
        raise ArgumentTypeError(f"Only real numbers have limits. Received the {which} of {self!r}.")

    def __eq__(self, other: object) -> _Bool:
        if isinstance(other, DType):
            return self.dtype == other.dtype
        try:
            # Programs compare types with names, numpy's and Python's types.
            return self.dtype == np.dtype(_names.get(other, other))  # pyright: ignore[reportArgumentType, reportCallIssue]
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __int__(self) -> int:
        return self.as_datatype_enum

    def __getattr__(self, name: str) -> Any:
        # Programs that know numpy ask for kind, type, itemsize and char. A copy in the making has no dtype yet.
        if name.startswith("__") or name == "dtype":
            raise AttributeError(f"'DType' object has no attribute {name!r}")
        return getattr(self.dtype, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self._name,)

    def __repr__(self) -> str:
        return f"tf.{self._name}"

    def __str__(self) -> str:
        return f"<dtype: {self._name!r}>"


_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

bfloat16 = DType(_BFLOAT16)
float16 = half = DType(np.float16)
float32 = DType(np.float32)
float64 = double = DType(np.float64)
int8 = DType(np.int8)
int16 = DType(np.int16)
int32 = DType(np.int32)
int64 = DType(np.int64)
uint8 = DType(np.uint8)
uint16 = DType(np.uint16)
uint32 = DType(np.uint32)
uint64 = DType(np.uint64)
complex64 = DType(np.complex64)
complex128 = DType(np.complex128)
string = DType(object, "string")
bool = DType(np.bool_)

# What numpy would take for a wider type, or not at all.
_names: dict[Any, Any] = {
    "string": object,
    "half": "float16",
    "double": "float64",
    float: "float32",
    int: "int32",
    str: object,
    bytes: object,
    "bfloat16": _BFLOAT16,
}
# TensorFlow's numbers of types, by which it writes them into files.
_ENUM = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
_BY_NUMBER = {number: name for name, number in _ENUM.items()}
_KNOWN = {
    t.dtype: t
    for t in (
        *(bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64),
        *(complex64, complex128, string, bool),
    )
}


def as_dtype(type_value: DTypeLike) -> DType:
    """Returns the type that `type_value` (a `DType`, a numpy or Python type, or a name) means.

    As in TensorFlow, Python's `float` and `int` mean 32 bits.

    Raises:
        ArgumentTypeError: If it means none.

    Source: tf.as_dtype.
    """
    if isinstance(type_value, DType):
        return type_value
    if type(type_value) is int:
        type_value = _BY_NUMBER.get(type_value, type_value)
    try:
        dtype = np.dtype(_names.get(type_value, type_value))
        # Fixed-width text of numpy counts as text.
        return string if dtype.kind in "SU" else _KNOWN[dtype]
    except (TypeError, KeyError):
        raise ArgumentTypeError(
            f"A dtype must be one of {', '.join(sorted(t.name for t in _KNOWN.values()))}. Received: {type_value!r}."
        ) from None


def dtype_of(dtype: Any) -> Any:
    """Returns the `DType` for a type of numpy or Keras; one that TensorFlow does not have, as it is."""
    try:
        return _KNOWN.get(np.dtype(dtype), dtype)
    except TypeError:
        return string if dtype == "string" else dtype
