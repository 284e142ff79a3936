"""tf.function: a function as it is, checked against its signature, compiled where that cannot change anything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras

from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._ops.training import NotRecordedError
from lockstep.compat.tensorflow._tensor import check_shape
from lockstep.distribute import get_strategy, has_strategy
from lockstep.distribute._context import default
from lockstep.errors import ArgumentError

__all__ = ["function"]


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: Any = None,
    experimental_attributes: Any = None,
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
    """What calls of a function have shown."""

    takes_derivatives = False


class _Function:
    """A function that was given to tf.function; a method of a class becomes a bound one, as usual."""

    def __init__(self, python_function: Callable[..., Any], input_signature: Any, compiled: bool) -> None:
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self.input_signature = input_signature
        self._compiled = jax.jit(python_function) if compiled else None
        self._found = _Found()  # Of all methods that are bound to this function.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.input_signature is not None:
            args = self._checked(args)
        if self._found.takes_derivatives and not dispatch.is_traced():
            return default().run(self.python_function, args, kwargs)
        if self._compiled is not None and _is_pure(self.python_function, args, kwargs):
            return self._compiled(*args, **kwargs)
        try:
            return self.python_function(*args, **kwargs)
        except NotRecordedError:
            if dispatch.is_traced() or (has_strategy() and get_strategy().num_replicas_in_sync > 1):
                raise
        self._found.takes_derivatives = True
        return default().run(self.python_function, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = self.python_function.__get__(instance, owner)
        found = _Function(bound, self.input_signature, self._compiled is not None)
        found._found = self._found
        return found

    def _checked(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(args) != len(self.input_signature):
            raise ArgumentError(
                f"input_signature has {len(self.input_signature)} entries. Received {len(args)} arguments."
            )
        return tuple(map(_fitted, self.input_signature, args))

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the function itself: there is no graph of it. Source: tf.function."""
        return self


def _fitted(spec: Any, value: Any) -> Any:
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise ArgumentError(f"input_signature must be a flat list of tf.TensorSpec. Received: {spec!r}.")
    tensor = convert_to_tensor(value, None if hasattr(value, "dtype") else spec.dtype)
    check_shape(tensor, spec.shape)
    return tensor


class _ReadsVariableError(Exception):
    pass


class _NoVariables(keras.StatelessScope):
    def get_current_value(self, variable: Any) -> Any:
        raise _ReadsVariableError

    def add_update(self, update: Any) -> None:
        raise _ReadsVariableError


def _is_pure(function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether JAX can trace the function, and it touches no variable, whose value would be compiled in."""
    try:
        with _NoVariables():
            jax.eval_shape(function, *args, **kwargs)
    except (_ReadsVariableError, TypeError, ValueError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return False
    return True
