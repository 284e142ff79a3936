"""Functions for one signature: `get_concrete_function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import keras
import numpy as np

from lockstep._nest import flatten, map_structure, pack, unpack
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._functions.arguments import TensorKind
from lockstep.compat.tensorflow._functions.graph import FunctionDef, Graph
from lockstep.compat.tensorflow._functions.program import Program
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._types import Argument
from lockstep.distribute.internal import Fixed
from lockstep.errors import ArgumentError, UnsupportedError


class ConcreteFunction:
    """A function for one signature; `Function.get_concrete_function` returns it.

    Attributes:
        name: Its name.
        input_signature: A spec for each tensor that it takes, in the structure of its positional arguments; `None` if
            some are given by name.

    Source: tf.types.experimental.ConcreteFunction.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        fit: Callable[[Any, Any], Any],
        call: Callable[..., Any],
    ) -> None:
        self.name = name
        self.python_function = function
        leaves, self._structure = flatten((args, kwargs))
        self._leaves = [_spec_of(leaf) for leaf in leaves]
        given, by_name = self._structure.unflatten(self._leaves)
        self.input_signature = None if by_name else given
        self._fit_spec = fit
        self._inner = call
        self._bound = inspect.signature(function)

    @property
    def structured_input_signature(self) -> tuple[Any, Any]:
        """Specs of the positional arguments and of those by name."""
        return self._structure.unflatten(self._leaves)

    @property
    def inputs(self) -> list[Any]:
        """Specs of the tensors that it takes."""
        return [leaf for leaf in self._leaves if isinstance(leaf, TensorSpec)]

    @property
    def structured_outputs(self) -> Any:
        """Specs of what it returns.

        Raises:
            ArgumentError: If a size is not known, by which JAX could compute those of results.
        """
        if any(None in spec.shape for spec in self.inputs):
            raise ArgumentError(
                "Shapes of results follow from those of the arguments. Received: a function for sizes that are not "
                f"known, {self.inputs}. Ask for get_concrete_function with whole shapes."
            )
        args, kwargs = self._structure.unflatten([_zeros(leaf) for leaf in self._leaves])
        found = jax.eval_shape(lambda: pack(self.python_function(*args, **kwargs)))
        return map_structure(lambda s: TensorSpec(s.shape, s.dtype), unpack(found))

    @cached_property
    def graph(self) -> Graph:
        """Its operations, as JAX has traced them.

        Raises:
            UnsupportedError: If it cannot be compiled, as a function of text.
        """
        kinds = [
            TensorKind(tuple(leaf.shape), jax.dtypes.canonicalize_dtype(as_dtype(leaf.dtype).dtype))
            if isinstance(leaf, TensorSpec)
            else Fixed(leaf)
            for leaf in self._leaves
        ]
        if any(None in spec.shape for spec in self.inputs):
            raise UnsupportedError(
                f"A graph is traced for whole shapes. Received: a function for sizes that are not known, {self.inputs}."
            )
        program = Program(self.python_function, self._structure, kinds)
        closed = program.closed
        count = len(flatten(program.structured_outputs)[0])
        return Graph(self.name, closed, self._tensor_names(), [v.name for v in program.met], count)

    @property
    def function_def(self) -> FunctionDef:
        """Its name, arguments and results, and its operations."""
        return FunctionDef(self.graph)

    @property
    def outputs(self) -> list[Any]:
        """The tensors that its graph returns."""
        return self.graph.outputs

    @property
    def captured_inputs(self) -> list[Any]:
        """Nothing: variables and arrays of elsewhere are found when it is called."""
        return []

    def _tensor_names(self) -> list[str]:
        """Returns a name for each tensor that it takes: of its spec, or of its parameter."""
        names: list[str] = []
        args, kwargs = self._structure.unflatten(self._leaves)
        for parameter, value in self._bound.bind(*args, **kwargs).arguments.items():
            specs = [leaf for leaf in flatten(value)[0] if isinstance(leaf, TensorSpec)]
            names += [
                spec.name or (parameter if len(specs) == 1 else f"{parameter}_{i}") for i, spec in enumerate(specs)
            ]
        return names

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        """Calls it with its tensors; other arguments are a part of it, and may be left out.

        Raises:
            TypeError: If a tensor does not fit its spec.
        """
        given, by_name = self._structure.unflatten(self._leaves)
        bound = self._bound.bind(*given, **by_name)
        if args or kwargs:
            names = [n for n, v in bound.arguments.items() if any(isinstance(x, TensorSpec) for x in flatten(v)[0])]
            # Positions count tensors alone if not all arguments are given.
            order = names if len(args) <= len(names) and len(args) < len(bound.arguments) else list(bound.arguments)
            for name, value in [*zip(order, args, strict=False), *kwargs.items()]:
                bound.arguments[name] = self._fit(bound.arguments.get(name), value)
        missing = [n for n, v in bound.arguments.items() if any(isinstance(x, TensorSpec) for x in flatten(v)[0])]
        if missing:
            raise TypeError(f"{self.name} takes tensors for {missing}, which are missing.")
        return self._inner(*bound.args, **bound.kwargs)

    def _fit(self, spec: Any, value: Any) -> Any:
        try:
            return self._fit_spec(spec, value) if any(isinstance(s, TensorSpec) for s in flatten(spec)[0]) else value
        except ArgumentError as error:
            raise TypeError(f"{self.name} is for {spec}: {error}") from error


def _zeros(leaf: Any) -> Any:
    return convert_to_tensor(np.zeros(leaf.shape, leaf.dtype), leaf.dtype) if isinstance(leaf, TensorSpec) else leaf


def _spec_of(leaf: Any) -> Any:
    if isinstance(leaf, TensorSpec) or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    return leaf if isinstance(leaf, keras.Variable) else TensorSpec(tuple(leaf.shape), leaf.dtype)
