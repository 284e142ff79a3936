"""Closure conversion: a function, and the traced values that it closes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lockstep._types import Array, PyTree


class ClosureConverted:
    """A function that can be called after the trace it was made in has ended.

    Args:
        function: Takes and returns PyTrees of arrays.
        *examples: Arguments of the shapes and dtypes of later calls.

    Attributes:
        captured: The traced values that the function uses besides its arguments.
    """

    def __init__(self, function: Callable[..., Any], *examples: PyTree) -> None:
        # jax.closure_convert does this too, but hoists floats only; optax' state has integers.
        self._program, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
        self._treedef = jax.tree.structure(shape)
        self._is_traced = [isinstance(c, Tracer) for c in self._program.consts]
        self.captured = [c for c, traced in zip(self._program.consts, self._is_traced, strict=True) if traced]
        self._constants = [None if t else c for c, t in zip(self._program.consts, self._is_traced, strict=True)]
        self._jaxpr = self._program.jaxpr
        del self._program

    def __call__(self, captured: list[Array], *arguments: PyTree) -> PyTree:
        """Calls the function with other values in place of the captured ones."""
        values = iter(captured)
        constants = [next(values) if t else c for c, t in zip(self._constants, self._is_traced, strict=True)]
        leaves = jaxpr_as_fun(ClosedJaxpr(self._jaxpr, constants))(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(self._treedef, leaves)
