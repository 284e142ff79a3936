"""Arguments of a function that tf.function compiles, and the key by which a call finds its program."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax._src.array import ArrayImpl

from lockstep._nest import flatten
from lockstep._types import PyTree
from lockstep.compat.tensorflow._composite import CompositeTensor
from lockstep.compat.tensorflow._tensor import HostTensor
from lockstep.distribute.internal import DistributedValues, Fixed

# Values of these types are their own keys, beside their type: 1, 1.0 and True are one key to a dict.
_PLAIN = frozenset((bool, int, float, complex, str, bytes))
_NUMBERS = frozenset((int, float, complex))
# Not `leaf.shape` and `leaf.dtype`: a tensor's look who asks for them, a microsecond each.
_shape_of = np.ndarray.shape.__get__
_dtype_of = np.ndarray.dtype.__get__


@dataclasses.dataclass(frozen=True)
class TensorKind:
    """Shape and type of an argument that is a tensor.

    Attributes:
        shape: The shape.
        dtype: The type.
        is_number: Whether it is a number of Python's, whose type follows that of what it is computed with.
    """

    shape: tuple[int, ...]
    dtype: Any
    is_number: bool = False

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        """Returns what a trace is given for it."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.is_number)


def key_of(leaves: Sequence[Any], widens: bool) -> tuple[Any, ...] | None:
    """Returns what a program depends on of each leaf, hashable; `None` if one is for the host only.

    This runs in each call, and is short for what is passed in nearly all: arrays, numbers and flags.
    """
    key: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is ArrayImpl:
            aval = leaf.aval
            key.append((aval.shape, aval.dtype))
        elif kind in _PLAIN:
            key.append(kind if widens and kind in _NUMBERS else (kind, leaf))
        elif isinstance(leaf, np.ndarray):
            dtype = _dtype_of(leaf)
            if dtype.kind in "OSUMm":
                return None
            key.append((_shape_of(leaf), dtype))
        elif isinstance(leaf, np.generic):
            if leaf.dtype.kind in "OSUMm":
                return None
            key.append(((), leaf.dtype))
        elif isinstance(leaf, jax.Array):
            key.append((tuple(leaf.shape), leaf.dtype))
        elif isinstance(leaf, (DistributedValues, CompositeTensor, keras.KerasTensor)):
            return None
        else:
            key.append(Fixed(leaf))
    return tuple(key)


def kind_of(leaf: Any, widens: bool) -> TensorKind | Fixed:
    """Returns what a trace is given for a leaf: an array, or the value itself."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return TensorKind(tuple(leaf.shape), jax.dtypes.canonicalize_dtype(np.dtype(leaf.dtype)))
    if widens and type(leaf) in _NUMBERS:
        return TensorKind((), jax.dtypes.canonicalize_dtype(jnp.result_type(leaf)), is_number=True)
    return Fixed(leaf)


def to_array(leaf: Any) -> Any:
    """Returns a leaf that is an array as `jax.jit` takes it without delay."""
    if type(leaf) is HostTensor:
        return leaf.device_array()
    # A class derived from numpy's is looked at by Python in each call.
    return np.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


class Signature:
    """Shapes and types of arguments that are tensors, one for each.

    A call that this matches has its program some 2 us sooner than by `key_of`, where a small step takes 75.

    Args:
        arrays: The arguments of a call, on the device.
    """

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        self._avals: list[Any] = [array.aval for array in arrays]

    def match(self, arguments: Sequence[Any]) -> list[Any] | None:
        """Returns the arguments on the device; `None` if some are of another shape or type, or no tensors."""
        if len(arguments) != len(self._avals):
            return None
        arrays: list[Any] = []
        for leaf, known in zip(arguments, self._avals, strict=True):
            array = leaf.on_device if type(leaf) is HostTensor else leaf
            if type(array) is not ArrayImpl:
                array = to_array(leaf)
                if type(array) is not ArrayImpl:
                    return None
            aval = array.aval
            # Arrays of one program's results have one such object.
            if aval is not known and (aval.shape != known.shape or aval.dtype != known.dtype):
                return None
            arrays.append(array)
        return arrays


class Place:
    """The place of a leaf among those of a call."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@dataclasses.dataclass(frozen=True)
class Canonical:
    """Arguments as the function's own signature orders them, with defaults.

    Attributes:
        structure: Of (args, kwargs).
        leaves: Values, or the `Place` of those that a call passes.
    """

    structure: PyTree
    leaves: Sequence[Any]

    @classmethod
    def of(cls, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Canonical:
        """Returns the arguments of a call."""
        # With the order of keys of this first call, which stays: another order compiles nothing.
        leaves, structure = flatten((args, kwargs))
        args, kwargs = structure.unflatten([Place(i) for i in range(len(leaves))])
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except (TypeError, ValueError):
            pass  # The call itself raises Python's error.
        else:
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        leaves, structure = flatten((args, kwargs))
        return cls(structure, leaves)
