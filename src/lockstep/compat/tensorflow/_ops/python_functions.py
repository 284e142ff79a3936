"""Python functions as operations: what they get are values of the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import DTypeLike
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["numpy_function", "py_function"]


def py_function(
    func: Callable[..., Any] | None = None, inp: PyTree = None, Tout: DTypeLike = None, name: str | None = None
) -> PyTree:
    """Calls a Python function with tensors of the host, and returns its results as types `Tout`.

    Without a function it returns a decorator: `@tf.py_function(Tout=tf.float32)`.

    Inside of code that JAX compiles the function cannot be called: as map function of a data set it runs per element.

    Source: tf.py_function.
    """
    if func is None:
        return _decorator(py_function, Tout)
    # Under an open tape it is called with what is recorded: TensorFlow takes derivatives of what it computes, too.
    is_recorded = recording.current() is not None and not dispatch.is_traced()
    given = [_array_for_tapes(i) if is_recorded else None for i in inp or ()]
    arguments = [as_host(_to_host(i)) if g is None else g for i, g in zip(inp or (), given, strict=True)]
    return _call_python(func, arguments, Tout)


def _decorator(call: Callable[..., Any], types: DTypeLike) -> Callable[..., Any]:
    """Returns what makes a Python function one of tensors."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def of_tensors(*args: Tensor) -> Any:
            return call(function, list(args), types)

        return of_tensors

    return decorate


def _array_for_tapes(value: Tensor) -> Any:
    """Returns the array that a tape may know; `None` for what stays on the host."""
    return value if isinstance(value, jax.Array) else recording.stands_for(value)


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: PyTree = None,
    Tout: DTypeLike = None,
    stateful: bool = True,
    name: str | None = None,
) -> PyTree:
    """Calls a Python function with numpy arrays; numbers and text of no dimensions come as scalars.

    Without a function it returns a decorator: `@tf.numpy_function(Tout=tf.float32)`.

    Source: tf.numpy_function.
    """
    if func is None:
        return _decorator(numpy_function, Tout)
    return _call_python(func, [np.asarray(_to_host(i))[()] for i in inp or ()], Tout)


def _to_host(value: Tensor) -> Any:
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
        raise UnsupportedError(
            "A Python function needs values, which do not exist while JAX compiles. Call it outside, or use "
            "jax.pure_callback for a pure function of numpy."
        )
    return (
        np.asarray(value) if isinstance(value, (jax.Array, keras.Variable)) else dispatch.to_array(dispatch.HOST, value)
    )


def _call_python(function: Callable[..., Any], arguments: list[Any], types: DTypeLike) -> Any:
    result = function(*arguments)
    # A list in Tout means a list of results, even of one.
    if isinstance(types, (list, tuple)):
        results = result if isinstance(result, (list, tuple)) else [result]
        if len(results) != len(types):
            raise ArgumentError(
                f"The function must return {len(types)} values, as Tout says. Received: {len(results)}."
            )
        return [convert_to_tensor(r, t) for r, t in zip(results, types, strict=True)]
    return None if types is None or result is None else convert_to_tensor(result, getattr(types, "dtype", types))
