"""tf.function, and the questions about eager and compiled code."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep._engine.step.jaxprs import name_of
from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._tensor import check_shape
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.config._settings import functions_run_eagerly
from lockstep.distribute import has_strategy
from lockstep.distribute.internal import DistributedValues, Fixed, default
from lockstep.errors import ArgumentError

__all__ = ["executing_eagerly", "function", "get_logger", "inside_function", "is_symbolic_tensor"]


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Any:
    """Compiles a function, as a decorator with or without arguments.

    It is compiled once for each signature: the structure of its arguments, the shapes and types of tensors, and all
    other values. Variables that it reads and assigns are state of the program. What it does besides computing happens
    when it is traced, a few times. In code that is compiled anyway (fit, `strategy.run`, map functions), in the scope
    of a strategy and under an open GradientTape it is called as it is. So is what cannot be compiled: text, numpy,
    conditions of Python on tensors, shapes that depend on values, loops over datasets; steps that it calls are then
    compiled by themselves.

    Args:
        func: The function.
        input_signature: `TensorSpec`s, which the positional arguments are checked against and converted to.
        autograph: Both are the same: a function with conditions of Python on tensors runs as it is.
        jit_compile: Both are the same.
        reduce_retracing: Whether Python's numbers are arguments, too, instead of a part of the program.
        experimental_implements: Refused.
        experimental_autograph_options: Refused.
        experimental_attributes: Refused.
        experimental_relax_shapes: As `reduce_retracing`.
        experimental_compile: As `jit_compile`.
        experimental_follow_type_hints: Refused.

    Raises ArgumentError if arguments do not fit the signature, or an option is for graphs only. Source: tf.function.
    """
    graph_only = (experimental_implements, experimental_autograph_options, experimental_attributes)
    if any(o is not None for o in (*graph_only, experimental_follow_type_hints)):
        raise ArgumentError(
            "tf.function takes func, input_signature, autograph, jit_compile and reduce_retracing. "
            "Received an option of "
            "TensorFlow's graphs, which do not exist here; leave it out."
        )
    options = _Options(input_signature, bool(reduce_retracing or experimental_relax_shapes))
    if func is None:
        return lambda f: Function(f, options)
    return Function(func, options)


class Function:
    """A function that was given to tf.function; a method of a class becomes a bound one, as usual."""

    def __init__(self, python_function: Callable[..., Any], options: _Options) -> None:
        functools.update_wrapper(self, python_function)
        self._name: str = getattr(python_function, "__name__", type(python_function).__name__)
        self.python_function = python_function
        self.input_signature = options.input_signature
        self._options = options
        self._programs: dict[Any, _Program] = {}

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        """Calls the compiled function."""
        args, kwargs = self._fitted(args, kwargs)
        if not self._is_compiled_here():
            return self.python_function(*args, **kwargs)
        program = self._program(args, kwargs)
        if program is None:
            return self.python_function(*args, **kwargs)
        return program(args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        # Kept on the instance: what was compiled for it, is found again, and goes with it.
        name = f"_lockstep_tf_function_{self._name}"
        found = getattr(instance, "__dict__", {}).get(name)
        if found is None or found[0] is not self:
            found = self, Function(self.python_function.__get__(instance, owner), self._options)
            if hasattr(instance, "__dict__"):
                # Not by setattr: Keras and tf.Module track what is assigned.
                vars(instance)[name] = found
        return found[1]

    def get_concrete_function(self, *args: Argument, **kwargs: Argument) -> Any:
        """Returns the function itself, which compiles for what it is given. Source: tf.function."""
        return self

    def experimental_get_tracing_count(self) -> int:
        """Returns for how many signatures it was compiled."""
        return len(self._programs)

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """Returns the signatures that it was compiled for, as text."""
        return "\n\n".join(program.describe(self._name, verbose) for program in self._programs.values())

    def _fitted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if kwargs:
            try:
                bound = inspect.signature(self.python_function).bind(*args, **kwargs)
            except (TypeError, ValueError):
                return args, kwargs  # The call itself raises Python's error.
            args, kwargs = bound.args, bound.kwargs
        return (args if self.input_signature is None else _fit_arguments(self.input_signature, args)), kwargs

    def _is_compiled_here(self) -> bool:
        # What is compiled around it compiles it, too. Under an open tape each operation is recorded. In the scope of a
        # strategy, strategy.run compiles.
        return not (
            functions_run_eagerly()
            or dispatch.is_traced()
            or recording.innermost() is not None
            or model_fn_scope() is not None
            or has_strategy()
        )

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Program | None:
        leaves, structure = jax.tree.flatten((args, kwargs))
        kinds = tuple(_kind(leaf, self._options.widens) for leaf in leaves)
        if _TEXT in kinds:
            return None
        key = structure, kinds
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = _Program(self.python_function, structure, kinds)
        return found


@dataclass(frozen=True)
class _Options:
    """Options of a function.

    Attributes:
        input_signature: `TensorSpec`s of the positional arguments, in any structure.
        widens: Whether Python's numbers are arguments, instead of a part of the program.
    """

    input_signature: Any
    widens: bool


@dataclass(frozen=True)
class _Array:
    """Shape and type of an argument that is a tensor."""

    shape: tuple[int, ...]
    dtype: Any


_TEXT = "text"
# So many times a function is compiled that could not be; a first call may make variables that the second one reads.
_TRIALS = 2


def _kind(leaf: Argument, widens: bool) -> Any:
    """Returns what a program depends on of an argument: shape and type of a tensor, else the value."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        # Text, objects and times are numpy's kinds that JAX has no type for.
        if not isinstance(leaf, jax.Array) and leaf.dtype.kind in "OSUMm":
            return _TEXT
        return _Array(tuple(leaf.shape), leaf.dtype)
    if widens and isinstance(leaf, (int, float, complex)) and not isinstance(leaf, bool):
        return _Array((), type(leaf))
    # Values of several replicas are for strategy.run.
    return _TEXT if isinstance(leaf, DistributedValues) else Fixed(leaf)


class _Program:
    """A function for one signature, compiled by the strategy of one device."""

    def __init__(self, function: Callable[..., Any], structure: Any, kinds: Sequence[Any]) -> None:
        self._function = function
        self._structure = structure
        self._kinds = kinds
        self._failures = 0
        self._is_compiled = False

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls it; as Python's own where it cannot be compiled."""
        if self._failures == _TRIALS:
            return self._function(*args, **kwargs)
        leaves = jax.tree.leaves((args, kwargs))
        arrays = [leaf for leaf, kind in zip(leaves, self._kinds, strict=True) if isinstance(kind, _Array)]
        # A weakly typed number keeps Python's type rules; the strategy would take it for a part of the program.
        arrays = [jnp.asarray(a) if isinstance(a, (int, float, complex)) else a for a in arrays]
        if self._is_compiled:
            return default().run(self._call, arrays)
        try:
            result = default().run(self._call, arrays)
        except Exception as error:
            # Text, numpy, shapes that depend on values, data sets, an error of the program's own: as Python's own
            # it computes the same, or raises what is wrong. Nothing was assigned to variables so far.
            self._failures += 1
            reason = str(error).partition("\n")[0]
            logging.getLogger("lockstep").info("tf.function runs %s uncompiled: %s", name_of(self._function), reason)
        else:
            self._is_compiled = True
            return result
        return self._function(*args, **kwargs)

    def _call(self, *arrays: Any) -> Any:
        given = iter(arrays)
        leaves = [next(given) if isinstance(kind, _Array) else kind.value for kind in self._kinds]
        args, kwargs = self._structure.unflatten(leaves)
        return self._function(*args, **kwargs)

    def describe(self, name: str, verbose: bool) -> str:
        """Returns the signature as text."""
        shown = [
            f"Tensor(shape={kind.shape}, dtype={np.dtype(kind.dtype).name})"
            if isinstance(kind, _Array)
            else f"Literal[{kind.value!r}]"
            for kind in self._kinds
        ]
        return f"{name}({', '.join(shown)})" if verbose else name


def _fit_arguments(signature: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(args) > len(signature):
        raise ArgumentError(f"input_signature has {len(signature)} entries. Received {len(args)} arguments.")
    # Arguments with a default may be left out.
    return tuple(_fit(spec, value) for spec, value in zip(signature, args, strict=False))


def _fit(spec: Any, value: Argument) -> Any:
    """Returns an argument as its specification says, in its structure."""
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):
        tensor = convert_to_tensor(value, None if hasattr(value, "dtype") else spec.dtype)
        check_shape(tensor, spec.shape)
        return tensor
    if isinstance(spec, Mapping) and isinstance(value, Mapping) and set(spec) == set(value):
        return type(value)({name: _fit(spec[name], value[name]) for name in value})  # pyright: ignore[reportCallIssue]
    if isinstance(spec, (list, tuple)) and isinstance(value, (list, tuple)) and len(spec) == len(value):
        parts = [_fit(s, v) for s, v in zip(spec, value, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    raise ArgumentError(
        f"Arguments have the structure of the input_signature, whose leaves are tf.TensorSpec. Received: {value!r:.80} "
        f"for {spec!r:.80}."
    )


def executing_eagerly() -> bool:
    """Returns whether values are known here: not while JAX compiles. Source: tf.executing_eagerly."""
    return not dispatch.is_traced()


def inside_function() -> bool:
    """Returns whether JAX is compiling this code. Source: tf.inside_function."""
    return dispatch.is_traced()


def is_symbolic_tensor(tensor: Tensor) -> bool:
    """Returns whether the tensor stands for values to come. Source: tf.is_symbolic_tensor."""
    return isinstance(tensor, (Tracer, keras.KerasTensor))


def get_logger() -> logging.Logger:
    """Returns lockstep's logger. Source: tf.get_logger."""
    return logging.getLogger("lockstep")
