"""The structure of elements: nested tuples, named tuples and dicts of host values.

A leaf is a numpy array or scalar, `bytes` for text, or a dataset (in the elements of `window`). Lists are arrays, as in
tf.data; `None` holds nothing. Mappings are `Packed` from where they enter to where users see them, and so keep the
order of their keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any, cast

import jax
import numpy as np

from lockstep._nest import PLAIN, Packed, unpack
from lockstep._types import Element, PyTree, PyTreeDef
from lockstep.data._composite import kind_of
from lockstep.errors import InputError

# numpy's own dtypes of text have a fixed width, and drop trailing zero bytes.
TEXT = np.dtype(object)
_LEAF = jax.tree.structure(0)


def is_named_tuple(value: PyTree) -> bool:
    """Returns whether `value` is of a named tuple's type."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def normalize(value: PyTree, path: tuple[Hashable, ...] = ()) -> Any:
    """Returns `value` with every leaf a host value; lists become arrays, text becomes `bytes`.

    Python's numbers become int32 and float32, as in TensorFlow. `path` says in errors where `value` lies in an element.
    """
    # The most usual leaf first: to see that an array is no Mapping takes longer than all else.
    if isinstance(value, np.ndarray) and _is_host_value(value):
        return value
    if is_named_tuple(value):
        fields = cast("Any", value)._fields
        return type(value)(*(normalize(v, (*path, name)) for name, v in zip(fields, value, strict=True)))
    if isinstance(value, tuple):
        # Recursion by hand: jax.tree.map would take lists for containers, and here they are arrays.
        return tuple(normalize(v, (*path, i)) for i, v in enumerate(cast("tuple[Any, ...]", value)))
    if isinstance(value, Mapping):
        return Packed.like(value, (normalize(v, (*path, key)) for key, v in value.items()))
    if value is None or _is_host_value(value):
        return value
    array = as_array(value, path)
    return array[()] if array.ndim == 0 else array


def as_array(value: PyTree, path: tuple[Hashable, ...] = ()) -> np.ndarray[Any, Any]:
    """Returns a host array with text as `bytes` objects; otherwise as `normalize`."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(
            f"A list in an element must be of one shape, because it becomes an array. {error}. Pad what differs in "
            "length, or use a tuple."
        ) from error
    if array.dtype.kind in "US" and isinstance(value, (str, bytes, np.ndarray, np.generic)):
        return (np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array).astype(object)
    if array.dtype.kind in "US":
        # Items as they are: np.asarray of [1, "a"] turns the 1 into text, and would hide the mistake.
        objects = np.empty(array.shape, object)
        objects[...] = np.asarray(value, object)
        return _check_text(objects, path)
    if array.dtype == TEXT:
        return _check_text(array, path)
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) or array.dtype.kind not in "if":
        return array
    return _narrow_python_numbers(value, array)


def call(function: Callable[..., Any], element: Element) -> Any:
    """Calls a user's function on an element; a tuple is spread over its arguments, a named tuple is not.

    A list that it returns is a tuple, as in tf.data; lists inside of its result are arrays.
    """
    # Users see their own dict types; `Packed` is for the inside.
    element = unpack(element)
    # tf.data unpacks tuples, but neither named tuples nor dicts.
    result = function(*element) if type(element) is tuple else function(element)
    return tuple(cast("list[Any]", result)) if isinstance(result, list) else result


def copy_arrays(element: Element) -> Any:
    """Returns new containers and arrays, for a function that changes its arguments."""
    # jax.tree.map takes 1.3 to 2.8 times as long, and this is called for each element of a map function.
    leaves, structure = flatten(element)
    return structure.unflatten([leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def flatten(element: Element) -> tuple[list[Any], PyTreeDef]:
    """Returns the leaves of an element and its structure, as `jax.tree.flatten`."""
    # Beside pictures, which push it out of the processor's cache, code that is not run is time: 1 % of decoding.
    return ([element], _LEAF) if type(element) in PLAIN else jax.tree.flatten(element)


def name_of(function: Callable[..., Any]) -> str:
    """Returns a function's name, for messages."""
    return getattr(function, "__qualname__", None) or type(function).__name__


def _is_host_value(value: PyTree) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "USO" or (
            value.dtype == TEXT and value.ndim > 0 and all(isinstance(v, bytes) for v in value.ravel())
        )
    return (
        type(value) is bytes
        or isinstance(value, (np.number, np.bool_))
        or hasattr(value, "element_spec")
        or kind_of(value) is not None
    )


def _narrow_python_numbers(value: PyTree, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Narrows Python's numbers to int32 and float32; a list of numpy values keeps their dtype."""
    # The array has forgotten which dtypes its items had; the first item tells.
    leaf = value
    while isinstance(leaf, (list, tuple)) and leaf:
        leaf = cast("list[Any]", leaf)[0]
    if isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
        return array
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    # TensorFlow makes int32 of Python's integers, where they fit.
    fits = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
    return array.astype(np.int32) if fits else array


def _check_text(array: np.ndarray[Any, Any], path: tuple[Hashable, ...]) -> np.ndarray[Any, Any]:
    flat = [_as_bytes(v) for v in array.ravel()]
    odd = {type(v).__name__ for v in flat if not isinstance(v, bytes)}
    if odd:
        field = f" in the field {''.join(f'[{key!r}]' for key in path)}" if path else ""
        # None is how pandas marks a value that is missing; a program would find it in the place of text.
        missing = " Replace each None, for example by an empty text." if "NoneType" in odd else ""
        raise InputError(
            "An element must hold numbers, text, or tuples and dicts of them, and a list must be of one shape. "
            f"Received: {', '.join(sorted(odd))}{field}. Convert it to a numpy array, and pad what differs in length."
            f"{missing}"
        )
    # np.array(flat, object) would make a second axis of items that are sequences.
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(array.shape)


def _as_bytes(value: PyTree) -> Any:
    """Converts text and paths to `bytes`, and leaves anything else."""
    if isinstance(value, os.PathLike):
        return os.fsencode(cast("os.PathLike[str]", value))
    return value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, bytes) else value
