"""Values of callbacks as JSON and arrays, and back.

JSON alone holds most of them. Arrays (numpy's and jax', also numpy's numbers, which JSON would change) go beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lockstep.errors import ArgumentError

_ARRAY, _TUPLE, _TYPES = "__array__", "__tuple__", (str, int, float, bool)


def packed(value: Any, place: str, arrays: dict[str, Any]) -> Any:
    """Returns `value` as JSON.

    Args:
        value: JSON, tuples and arrays.
        place: What it is called: in errors, and in `arrays`.
        arrays: Takes the arrays.

    Raises:
        ArgumentError: If there is anything else in it.
    """
    if value is None or type(value) in _TYPES:
        return value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) and np.dtype(value.dtype).kind != "O":
        arrays[place] = value
        return {_ARRAY: place}
    if isinstance(value, (list, tuple)):
        found = [packed(v, f"{place}/{i}", arrays) for i, v in enumerate(value)]
        return {_TUPLE: found} if isinstance(value, tuple) else found
    if isinstance(value, Mapping) and all(isinstance(k, str) and not k.startswith("__") for k in value):
        return {k: packed(v, f"{place}/{k}", arrays) for k, v in value.items()}
    raise ArgumentError(
        f"The state of a callback is kept as JSON and arrays: dicts with keys of text, lists, text, numbers, arrays. "
        f"Received: {value!r:.80} of type {type(value).__name__} in {place}. Let get_state() return such values."
    )


def unpacked(value: Any, arrays: Mapping[str, Any]) -> Any:
    """Returns what `packed` was given, with numpy's arrays."""
    if isinstance(value, list):
        return [unpacked(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        found = np.asarray(arrays[value[_ARRAY]])
        return found if found.ndim else found[()]
    if _TUPLE in value:
        return tuple(unpacked(v, arrays) for v in value[_TUPLE])
    return {k: unpacked(v, arrays) for k, v in value.items()}
