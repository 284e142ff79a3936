"""tf.function, and the questions about eager and compiled code."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax
import keras
from jax.core import Tracer

from lockstep._types import PyTree, Tensor, Variable
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._ops.gradient_tape import NotRecordedError, compiled_tapes
from lockstep.compat.tensorflow._tensor import check_shape
from lockstep.compat.tensorflow._types import Argument
from lockstep.distribute import get_strategy, has_strategy
from lockstep.distribute.internal import default
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
    """Marks a function, as a decorator with or without arguments.

    The function is called as it is: Keras' fit, `strategy.run` and map functions of datasets compile by themselves. One
    that takes derivatives with a GradientTape is run by the strategy of one device; what it does besides computing then
    happens once or a few times. With `jit_compile=True` jax.jit compiles it, if JAX can trace it and it reads no
    variable; as in TensorFlow, effects such as `print` then happen once.

    Args:
        func: The function.
        input_signature: `TensorSpec`s, which the positional arguments are checked against and converted to.
        autograph: Both are the same: Python's own control flow runs.
        jit_compile: Whether to compile.
        reduce_retracing: Both are the same.
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
    if func is None:
        return functools.partial(
            function,
            input_signature=input_signature,
            jit_compile=jit_compile,
            experimental_compile=experimental_compile,
        )
    return _Function(func, input_signature, bool(jit_compile or experimental_compile))


class _Found:
    """Record of a function's calls, shared by all methods that are bound to it."""

    takes_derivatives = False


class _Function:
    """A function that was given to tf.function; a method of a class becomes a bound one, as usual."""

    def __init__(self, python_function: Callable[..., Any], input_signature: Any, compiled: bool) -> None:
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self.input_signature = input_signature
        self._compiled = jax.jit(python_function) if compiled else None
        self._found = _Found()  # Of all methods that are bound to this function.

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        if self.input_signature is not None:
            args = _fit_arguments(self.input_signature, args)
        # An earlier call has met a tape.
        if self._found.takes_derivatives and not dispatch.is_traced():
            return default().run(self.python_function, args, kwargs)
        if self._compiled is not None and _is_pure(self.python_function, args, kwargs):
            return self._compiled(*args, **kwargs)
        try:
            with compiled_tapes():
                return self.python_function(*args, **kwargs)
        # A tape needs compiled code, which the strategy of one device makes. What the function did before it opened the
        # tape has happened already, and happens again.
        except NotRecordedError:
            if dispatch.is_traced() or (has_strategy() and get_strategy().num_replicas_in_sync > 1):
                raise
        self._found.takes_derivatives = True
        return default().run(self.python_function, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        # Each access binds the method anew; the record of its calls belongs to the function.
        bound = self.python_function.__get__(instance, owner)
        method = _Function(bound, self.input_signature, self._compiled is not None)
        method._found = self._found
        return method

    def get_concrete_function(self, *args: Argument, **kwargs: Argument) -> Any:
        """Returns the function itself: there is no graph of it. Source: tf.function."""
        return self


def _fit_arguments(signature: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(args) != len(signature):
        raise ArgumentError(f"input_signature has {len(signature)} entries. Received {len(args)} arguments.")
    tensors: list[Any] = []
    for spec, value in zip(signature, args, strict=True):
        if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
            raise ArgumentError(f"input_signature must be a flat list of tf.TensorSpec. Received: {spec!r}.")
        tensors.append(convert_to_tensor(value, None if hasattr(value, "dtype") else spec.dtype))
        check_shape(tensors[-1], spec.shape)
    return tuple(tensors)


class _ReadsVariableError(Exception):
    pass


class _NoVariables(keras.StatelessScope):
    def get_current_value(self, variable: Variable) -> Any:
        raise _ReadsVariableError

    def add_update(self, update: Argument) -> None:
        raise _ReadsVariableError


def _is_pure(function: Callable[..., Any], args: PyTree, kwargs: PyTree) -> bool:
    """Returns whether JAX can trace the function, and it touches no variable."""
    try:
        # jax.jit would compile the value of a variable in, and never see another.
        with _NoVariables():
            jax.eval_shape(function, *args, **kwargs)
    except (_ReadsVariableError, TypeError, ValueError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return False
    return True


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
