"""Shapes of what layers of users' classes return, where their code computes with sizes that are left open.

Keras has JAX trace a layer's `call` with symbols for sizes that are None. Code of TensorFlow computes with numbers:
`tf.shape(x)[0]`, `tf.reshape(x, (batch, -1))`, `tf.random.normal((batch, n))`. Where symbols do not serve, the call is
traced with two numbers, one after the other, and sizes that differ are left open.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
from jax.errors import ConcretizationTypeError
from jax.export import symbolic_shape
from keras.src import backend, tree

from lockstep._types import PyTree
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import is_called_by_us

# Many numbers divide both, so that code which cuts a size into equal parts finds one that it can cut.
_SIZES = 240, 480
_original: Callable[..., Any] = backend.compute_output_spec


def _find_undecided() -> type[Exception]:
    # JAX has no public name of the class.
    size = symbolic_shape("(n)")[0]
    try:
        bool(size > 1000)
    except Exception as error:
        return type(error)
    return ConcretizationTypeError


_UndecidedError = _find_undecided()


@functools.wraps(_original)
def _compute_output_spec(fn: Callable[..., Any], *args: Argument, **kwargs: Argument) -> Any:
    try:
        return _original(fn, *args, **kwargs)
    except _UndecidedError:
        if not is_called_by_us():
            raise
        first, second = (_original(fn, *_fill(args, size), **_fill(kwargs, size)) for size in _SIZES)
        return tree.map_structure(_open_sizes, first, second)


def _fill(arguments: PyTree, size: int) -> Any:
    def fill(value: Any) -> Any:
        if not isinstance(value, keras.KerasTensor) or None not in value.shape:
            return value
        shape = tuple(size if s is None else s for s in value.shape)
        return keras.KerasTensor(shape, value.dtype, sparse=value.sparse)

    return jax.tree.map(fill, arguments, is_leaf=lambda value: isinstance(value, keras.KerasTensor))


def _open_sizes(first: Any, second: Any) -> Any:
    """Returns the first of two results with None for the sizes that the second one has otherwise."""
    if not isinstance(first, keras.KerasTensor):
        return first
    shape = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return keras.KerasTensor(shape, first.dtype, sparse=first.sparse)


backend.compute_output_spec = _compute_output_spec
