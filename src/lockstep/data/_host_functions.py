"""`numpy_function` and `py_function`: functions that JAX must not trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.core import Tracer

from lockstep._nest import opened
from lockstep._types import ArrayLike, DType, PyTree
from lockstep.data import _structure
from lockstep.data._spec import as_dtype
from lockstep.data._structure import TEXT
from lockstep.data._tracing import NotTraceableError
from lockstep.errors import InputError


def numpy_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: PyTree, stateful: bool = True, name: str | None = None
) -> Any:
    """Calls `func` with numpy arrays, inside of a map function; the map function is then called for each element.

    Args:
        func: Takes and returns numpy arrays, numbers or text.
        inp: Its arguments.
        Tout: The dtype of its result, or a list of dtypes for several; empty for none.
        stateful: Ignored: `func` is called once per element.
        name: Ignored; accepted for TensorFlow's signature.

    Raises:
        InputError: If the result does not fit `Tout`.

    Source: tf.numpy_function.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(list(inp))):
        raise NotTraceableError("numpy_function")
    result = func(*[opened(_structure.normalize(value)) for value in inp])
    # A single dtype means a single result, not a list of one, as in TensorFlow.
    if not isinstance(Tout, (list, tuple)):
        return _cast(result, Tout, func)
    if not Tout:
        return ()
    results = result if isinstance(result, (list, tuple)) else [result]
    if len(results) != len(Tout):
        raise InputError(
            f"The function {_structure.name_of(func)} must return {len(Tout)} values, one for each dtype of Tout. "
            f"Received: {len(results)}."
        )
    return [_cast(r, t, func) for r, t in zip(results, Tout, strict=True)]


def py_function(func: Callable[..., Any], inp: Sequence[Any], Tout: PyTree, name: str | None = None) -> Any:
    """Calls `func` as `numpy_function` does. Source: tf.py_function."""
    return numpy_function(func, inp, Tout)


def _cast(value: ArrayLike, dtype: DType, func: Callable[..., Any]) -> Any:
    wanted = as_dtype(dtype)
    array = _structure.as_array(value)
    if (wanted == TEXT) != (array.dtype == TEXT):
        raise InputError(
            f"The function {_structure.name_of(func)} must return what Tout says, {dtype}. Received: {array.dtype}."
        )
    return array[()] if wanted == TEXT else array.astype(wanted, copy=False)[()]
